"""Machine code (SASS) of kernels: disassembled objects, the graph of a function's basic blocks, its loops, and what a warp
executes on its way through them."""
import collections
import concurrent.futures
import re
import subprocess
import sys

ARCHITECTURE = "sm_90a"

FUNCTION = re.compile(r"^\s*Function : (\S+)", re.M)
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;", re.M)
TARGET = re.compile(r"0x[0-9a-f]+$")
NEVER_TAKEN = ("BRA.DIV", "BRA.CONV")  # for lanes that are not together

Instruction = collections.namedtuple("Instruction", "address predicate opcode operands")


def listings(folder, names, cuobjdump, architecture=ARCHITECTURE):
    """{name: disassembly} of the objects NAME.cu.o somewhere below a folder."""
    objects = {name: list(folder.rglob(f"{name}.cu.o")) for name in names}
    missing = [name for name, files in objects.items() if len(files) != 1]
    if missing:
        sys.exit(f"not one object each of {', '.join(missing)} in {folder}")

    def disassembled(files):
        return subprocess.run([cuobjdump, "-sass", "-arch", architecture, str(files[0])], check=True, text=True,
                              capture_output=True).stdout

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(objects, pool.map(disassembled, objects.values())))


def texts_of(listing):
    """{function: its part of a listing}"""
    parts = FUNCTION.split(listing)
    return dict(zip(parts[1::2], parts[2::2]))


def instructions(text):
    return [Instruction(int(address, 16), predicate or None, opcode, operands)
            for address, predicate, opcode, operands in INSTRUCTION.findall(text)]


class Graph:
    """Basic blocks [first, last] of instructions that the entry reaches: `successors` and `loops`."""

    END = -1

    def __init__(self, code):
        self.blocks, edges = self._cut(code)
        self.successors = {}
        left = [0]
        while left:
            block = left.pop()
            if block not in self.successors and block != self.END:
                self.successors[block] = edges[block]
                left += edges[block]
        self.loops = self._find_loops()

    def _cut(self, code):
        index = {instruction.address: i for i, instruction in enumerate(code)}
        after, starts = {}, {0}
        for i, instruction in enumerate(code):
            to = self._jump(instruction, i, index)
            if to is not None:
                after[i] = to
                starts.update({i + 1, *to} - {self.END, len(code)})
        order = sorted(starts)
        number = {start: block for block, start in enumerate(order)}
        blocks, edges = [], []
        for start, end in zip(order, [*order[1:], len(code)]):
            blocks.append(code[start:end])
            to = after.get(end - 1, [end])
            edges.append([self.END if place in (self.END, len(code)) else number[place] for place in to])
        return blocks, edges

    def _jump(self, instruction, i, index):
        """Where an instruction that ends a block leads; None for others."""
        opcode = instruction.opcode.split(".")[0]
        if opcode in ("RET", "KILL"):
            return [self.END]
        if opcode == "EXIT":
            return [self.END] if instruction.predicate is None else [i + 1, self.END]
        if opcode in ("BRX", "JMX", "JMP"):
            raise ValueError(f"{instruction.opcode} at {instruction.address:#x}: its targets stand in a table")
        if opcode != "BRA" or instruction.opcode.startswith(NEVER_TAKEN):
            return None
        to = index[int(TARGET.search(instruction.operands)[0], 16)]
        conditional = instruction.predicate is not None or "," in instruction.operands
        return [i + 1, to] if conditional else [to]

    def _find_loops(self):
        """{header: blocks} of the natural loops, of edges to a block that dominates where they come from."""
        nodes = sorted(self.successors)
        before = collections.defaultdict(list)
        for block, to in self.successors.items():
            for target in to:
                before[target].append(block)
        everything = (1 << (nodes[-1] + 1)) - 1
        dominators = {block: everything for block in nodes}
        dominators[0] = 1
        changed = True
        while changed:
            changed = False
            for block in nodes[1:]:
                common = everything
                for other in before[block]:
                    common &= dominators[other]
                common |= 1 << block
                if common != dominators[block]:
                    dominators[block], changed = common, True
        loops = {}
        for block, to in self.successors.items():
            for header in to:
                if header == self.END or not dominators[block] >> header & 1:
                    continue
                inside = loops.setdefault(header, {header})
                left = [block]
                while left:
                    place = left.pop()
                    if place not in inside:
                        inside.add(place)
                        left += before[place]
        return loops


ALL = "all"


class Loop:
    """A loop that a warp takes, or with no anchor the whole function.

    anchor  a regular expression that an instruction of the loop matches
    without  one that none does
    count   of such instructions a warp executes in all: the rounds follow, however the compiler has unrolled
    rounds  their number, where it is known
    needs   {regular expression: how many such instructions a round executes, or ALL that stand in it}: tells the way where
            there are several
    loops   those inside; one of which a warp takes several ways stands here once for each
    every   all loops that match are taken; else only one does, or of several the one that does most in a round of `count`
    """

    def __init__(self, anchor=None, count=None, rounds=None, needs=None, loops=(), without=None, every=False):
        self.anchor, self.count, self.rounds = anchor, count, rounds
        self.needs, self.loops, self.without, self.every = needs or {}, loops, without, every


class NoWay(ValueError):
    """A plan does not fit the code."""


def matches(pattern, instruction):
    return re.search(pattern, f"{instruction.opcode} {instruction.operands}") is not None


def executed(graph, function):
    """[(instruction, how often a warp executes it)] of a function on the way that its plan, a Loop, tells."""
    return _way(graph, function, 0, set(graph.successors), Graph.END)


def executed_in(graph, plan):
    """The same of a planned loop alone, without what lies around it."""
    return [step for _, code in _planned(graph, plan, set(graph.successors)) for step in code]


def _way(graph, plan, entry, inside, end):
    """The shortest way from `entry` to `end` through the blocks `inside` that takes the planned loops and does what is
    needed. Predicated instructions count whether they do something or not."""
    loops = {}
    for loop in plan.loops:
        for header, code in _planned(graph, loop, inside - {entry} if plan.anchor else inside):
            loops[header] = loops.get(header, []) + code
    rest = [block for block in inside if not any(block in graph.loops[header] for header in loops)]
    needs = {need: sum(matches(need, instruction) for block in rest for instruction in graph.blocks[block])
             if count is ALL else count for need, count in plan.needs.items()}
    goal = (*needs.values(), *(1 for _ in loops))

    def of_block(block):
        """What is executed in it, and what of the goal is done by that."""
        if block in loops:
            return loops[block], (*(0 for _ in needs), *(int(block == header) for header in loops))
        code = graph.blocks[block]
        return ([(instruction, 1) for instruction in code],
                (*(sum(matches(need, instruction) for instruction in code) for need in needs), *(0 for _ in loops)))

    def onwards(block):
        members = graph.loops[block] if block in loops else {block}
        targets = {target for member in members for target in graph.successors[member] if target not in members}
        if entry in graph.successors[block] and entry == end:  # a loop of one block
            targets.add(entry)
        return sorted(target for target in targets
                      if target == end or (target in inside and block not in graph.loops.get(target, ())))

    ways = {end: {tuple(0 for _ in goal): (0, ())}}  # {what is done from a block on: (instructions, (block, (the next, …)))}
    found = {}
    for block in _postorder(entry, end, onwards):
        code, done = of_block(block)
        size, found = sum(times for _, times in code), {}
        for target in onwards(block):
            for state, (further, blocks) in ways[target].items():
                after = tuple(a + b for a, b in zip(done, state))
                if all(a <= b for a, b in zip(after, goal)) and (after not in found or size + further < found[after][0]):
                    found[after] = size + further, (block, blocks)
        if block != entry:
            ways[block] = found
    if goal not in found:
        raise NoWay(f"no way from {graph.blocks[entry][0].address:#x} has {needs} and the loops of "
                    f"{[loop.anchor for loop in plan.loops]}")
    code, blocks = [], found[goal][1]
    while blocks:
        code += of_block(blocks[0])[0]
        blocks = blocks[1]
    return code


def _postorder(entry, end, onwards):
    """The blocks from `entry` on, each behind those that it leads to."""
    order, seen, stack = [], {entry}, [(entry, iter(onwards(entry)))]
    while stack:
        block, targets = stack[-1]
        target = next(targets, None)
        if target is None:
            order.append(block)
            stack.pop()
        elif target != end and target not in seen:
            seen.add(target)
            stack.append((target, iter(onwards(target))))
    return order


def _planned(graph, plan, inside):
    """[(header, what all rounds execute)] of the loop that is meant, or of every one."""
    headers = [header for header in graph.loops if header in inside]
    outermost = [header for header in headers
                 if not any(header in graph.loops[other] for other in headers if other != header)]
    found = []
    for header in outermost:
        of_loop = [instruction for block in graph.loops[header] for instruction in graph.blocks[block]]
        if not any(matches(plan.anchor, instruction) for instruction in of_loop) or \
                (plan.without and any(matches(plan.without, instruction) for instruction in of_loop)):
            continue
        try:
            code = _way(graph, plan, header, graph.loops[header], header)
        except NoWay:
            continue
        anchors = sum(times for instruction, times in code if matches(plan.anchor, instruction))
        if plan.count is None or 0 < anchors <= plan.count:
            found.append((anchors, header, code))
    if not found or (len(found) > 1 and plan.count is None and not plan.every):
        raise NoWay(f"{len(found)} loops have {plan.anchor} and what is planned for it")
    if not plan.every:
        found = [max(found, key=lambda item: item[0])]
    return [(header, [(instruction, times * (plan.rounds if plan.count is None else plan.count / anchors))
                      for instruction, times in code]) for anchors, header, code in found]
