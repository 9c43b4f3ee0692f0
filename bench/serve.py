#!/usr/bin/env python3
"""What batching brings to `translate serve`: requests a second of many clients and of one, in turn, with every answer
compared with that of `translate run`, and the server's memory.

    bench/serve.py TRANSLATE MODEL TEXTS [--clients 32] [--seconds 60] [--rounds 3] [--beam 5] [--at-least 3]

TEXTS is a file with one text a line. Exits with 1 where an answer is wrong, memory grows by more than a tenth after the
first round, or many clients get less than --at-least times what one gets.
"""
import argparse
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time


def expected(options):
    """The right answer to each text."""
    command = [options.translate, "run", "--model", options.model, "--beam", str(options.beam), "--json", "--input",
               options.texts]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line["source"]: line["outputs"][0]["text"] for line in map(json.loads, lines)}


def request(text, beam):
    body = json.dumps({"text": text, "beam": beam}).encode()
    head = f"POST /api/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def more(connection):
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the server has closed a connection")
    return data


def receive(connection):
    """An answer's status and body. The clients share the processors with the server: http.client would take as much of
    them as the answer itself."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += more(connection)
    head = data[:end].lower()
    length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    while len(data) < end + 4 + length:
        data += more(connection)
    return int(head.split(b" ", 2)[1]), data[end + 4:]


def ask(port, answers, beam, first, until, result):
    """Asks for one text after another, and counts right and wrong answers and their seconds."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    texts = list(answers)
    with connection:
        for i in itertools.count(first):
            text = texts[i * 7919 % len(texts)]
            begin = time.monotonic()
            if begin >= until:
                break
            connection.sendall(request(text, beam))
            status, body = receive(connection)
            right = status == 200 and json.loads(body)["results"][0]["outputs"][0]["text"] == answers[text]
            result["right" if right else "wrong"] += 1
            result["seconds"].append(time.monotonic() - begin)


def load(port, answers, beam, clients, seconds):
    results = [{"right": 0, "wrong": 0, "seconds": []} for _ in range(clients)]
    begin = time.monotonic()
    threads = [threading.Thread(target=ask, args=(port, answers, beam, 101 * n, begin + seconds, result))
               for n, result in enumerate(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    times = sorted(t for result in results for t in result["seconds"])
    return {"rate": sum(r["right"] for r in results) / took, "wrong": sum(r["wrong"] for r in results),
            "middle_ms": 1e3 * times[len(times) // 2], "slow_ms": 1e3 * times[len(times) * 99 // 100]}


def resident(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("translate", "model", "texts"):
        parser.add_argument(name)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=3)
    options = parser.parse_args()
    answers = expected(options)
    server = subprocess.Popen([options.translate, "serve", "--model", options.model, "--port", "0", "--json"],
                              stdout=subprocess.PIPE, text=True)
    try:
        port = json.loads(server.stdout.readline())["port"]
        rounds, memory = [], []
        for n in range(options.rounds):
            one = load(port, answers, options.beam, 1, options.seconds / options.rounds / 3)
            many = load(port, answers, options.beam, options.clients, options.seconds / options.rounds)
            rounds.append((one, many))
            memory.append(resident(server))
            print(f"round {n + 1}: one {one['rate']:.1f}/s ({one['middle_ms']:.1f} ms), {options.clients} clients "
                  f"{many['rate']:.1f}/s ({many['middle_ms']:.1f} ms, 99 % in {many['slow_ms']:.1f} ms), "
                  f"{many['rate'] / one['rate']:.2f} times; {memory[-1] / 1024:.1f} MB", flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    ratio = sorted(many["rate"] / one["rate"] for one, many in rounds)[len(rounds) // 2]
    wrong = sum(part["wrong"] for pair in rounds for part in pair)
    print(f"{ratio:.2f} times, {wrong} wrong answers, memory {memory[0] / 1024:.1f} to {memory[-1] / 1024:.1f} MB, "
          f"exit code {code}")
    return int(wrong > 0 or ratio < options.at_least or memory[-1] > 1.1 * memory[0] or code != 143)


if __name__ == "__main__":
    sys.exit(main())
