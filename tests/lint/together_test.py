#!/usr/bin/env python3
"""Which sources cmake/together.py puts in one file."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))
import together  # noqa: E402


def private(text):
    return f"namespace heed {{\nnamespace {{\n\n{text}\n\n}}  // namespace\nint shared();\n}}  // namespace heed\n"


class Together(unittest.TestCase):
    def test_sources_with_a_name_in_common_are_apart(self):
        for one, other in (
            ("int count(int n) { return n; }", "template <class T>\nvoid count(T) {}"),
            ("constexpr int kMost = 3, kLeast = 2;", "constexpr float kLeast = 0;"),
            ("struct Part {\n  int size;\n};", "using Part = int;"),
            ("enum class Kind { one };", "class alignas(64) Kind {};"),
            ("TEST(Sum, Adds) {}", "TEST_F(Sum, Adds) {}"),
            ("#define ROW 3", "#define ROW 4"),
        ):
            sources = {"a.cpp": private(one), "b.cpp": private(other), "c.cpp": private("int third = 3;")}
            self.assertEqual(together.together(sources), [["a.cpp", "c.cpp"], ["b.cpp"]], (one, other))

    def test_other_sources_are_together(self):
        for one, other in (
            ("int count(int n) { return n; }", "int sum(int count) { return count; }"),
            ("#define ROW 3\n#undef ROW", "#define ROW 4\n#undef ROW"),
            ("TEST(Sum, Adds) {}", "TEST(Sum, Subtracts) {}"),
            ("using kernels::Gemm;", "using kernels::Softmax;"),
            ("static_assert(sizeof(int) == 4);", "static_assert(sizeof(float) == 4);"),
        ):
            self.assertEqual(together.together({"a.cpp": private(one), "b.cpp": private(other)}), [["a.cpp", "b.cpp"]])

    def test_kernels_of_several_instruction_sets_are_alone(self):
        kernel = '#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE "x.cpp"\n'
        sources = {"a.cpp": kernel, "b.cpp": kernel, "c.cpp": private("int n;")}
        self.assertEqual(together.together(sources), [["c.cpp"], ["a.cpp"], ["b.cpp"]])

    def test_a_file_has_a_limit(self):
        sources = {f"{i}.cpp": "" for i in range(together.MOST + 1)}
        self.assertEqual([len(group) for group in together.together(sources)], [together.MOST, 1])


if __name__ == "__main__":
    unittest.main()
