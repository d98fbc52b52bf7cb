"""Every rule of `tests/lint house` fails where it is broken, and nowhere else: each is broken once in a small tree."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import house

README = "| room | does | sees | lines |\n|---|---|---|--:|\n| [{0}](room/README.md) | all | - | 120 |\n"
BODY = "".join(f"  x{i}();\n" for i in range(79))
# Each text breaks the rule once.
BROKEN = {
    "long-functions": ["void f() {\n" + BODY + "}\n", "struct S {\n  int f() const {\n" + BODY + "  }\n};\n"],
    "big-classes": ["struct S {\n" + "".join(f"  int m{i} = 0;\n" for i in range(31)) + "};\n",
                    "class S final : public T {\n  int a, b, c;\n" + "  std::map<int, int> m;\n" * 28 + "};\n"],
    "hot-words": ["[[gnu::noinline]] void f();\n", "void f() { __builtin_prefetch(p); }\n", "void f() { asm volatile(\"\"); }\n"],
    "locale-words": ["auto x = strtod(s, &e);\n", "auto x = std::strtof(s, &e);\n", "auto x = strtold(s, &e);\n",
                     "auto x = atof(s);\n",
                     "auto x = std::stod(s);\n", "auto x = std::stof(s);\n", "auto x = std::stold(s);\n",
                     "setlocale(LC_ALL, 0);\n",
                     "auto l = newlocale(1, s, 0);\n", "uselocale(l);\n", "localeconv();\n", "std::locale l;\n",
                     "#include <sstream>\n", "#include <fstream>\n", "#include <iostream>\n", "#  include <iomanip>\n",
                     "#include <clocale>\n", 'std::snprintf(t, n, "%.3f", x);\n', 'std::snprintf(t, n, "%d %-8.*e", 1, 2, x);\n'],
    "old-words": [f"// {sentence}\n" for sentence in (
        "nobody knows", "the file says who is told", "It tells.", "it goes out", "it stands there", "a file of ours",
        "a folder of its own", "one of theirs", "seldomer", "it is said", "in the way", "it lies beside", "Whoever reads it.",
        "whatever it is", "like the one before it", "Read it. What it is.")],
    "raw-prints": ["std::fprintf(stderr, \"%s\", name);\n", "printf(text);\n", "std::fputs(text, stdout);\n", "puts(text);\n",
                   "std::fwrite(text, 1, n, stderr);\n", "std::cout << name;\n", "std::cerr << name;\n",
                   'fmt::print("{}", name);\n', "perror(name);\n"],
    "spread-classes": [],
}
# Rules that hold in some folders alone.
FOLDERS_OF = {"locale-words": house.LOCALE_FREE, "raw-prints": ("tools",)}
CLEAN = ["void f() {\n" + BODY[: BODY.rindex("  ")] + "}\n",
         "struct S {\n" + "".join(f"  int m{i} = 0;\n" for i in range(30)) + "  int f();\n  using T = int;\n};\n",
         "const char* text = \"noinline strtod\";  // noinline strtod\n", "// hot: some_bench\n[[gnu::noinline]] void f();\n",
         'std::snprintf(t, n, "%d", x);\n', "auto x = std::from_chars(a, b, c);\n",
         "int whoever = 0;  // What is called twice.\n"]


class House(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mfu-house-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, value in (("SOURCE", self.root), ("ALLOWANCES", self.root / "house.txt")):
            self.addCleanup(setattr, house, name, getattr(house, name))
            setattr(house, name, value)
        house.ALLOWANCES.write_text("")
        for top in house.FOLDERS:
            (self.root / top / "room").mkdir(parents=True)
            (self.root / top / "README.md").write_text(README.format(top))

    def check(self, top, *texts):
        """(exit code, what is printed) with these files in a room."""
        files = [self.root / top / "room" / f"f{i}.cpp" for i in range(len(texts))]
        for file, text in zip(files, texts):
            file.write_text(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            failed = house.check(False)
        for file in files:
            file.unlink()
        return failed, out.getvalue()

    def test_a_clean_room_passes(self):
        for text in CLEAN:
            with self.subTest(text=text[:60]):
                self.assertEqual(self.check("core", text), (False, ""))

    def test_each_rule_fails_where_it_is_broken(self):
        for rule, texts in BROKEN.items():
            for text in texts:
                for top in FOLDERS_OF.get(rule, house.FOLDERS):
                    with self.subTest(rule=rule, folder=top, text=text[:60]):
                        failed, said = self.check(top, text)
                        self.assertTrue(failed)
                        self.assertRegex(said, rf"^{top}/room: 1 {rule}, 0 are allowed .*\n  {top}/room/f0\.cpp:\d+: [^\n]*\n$")
        for rule, folders in FOLDERS_OF.items():
            for top in set(house.FOLDERS) - set(folders):
                self.assertEqual(self.check(top, *BROKEN[rule]), (False, ""))

    def test_methods_in_two_files_fail(self):
        failed, said = self.check("tools", "void Thing::f() {\n}\n", "int Thing::g() const {\n  return 1;\n}\n")
        self.assertTrue(failed)
        self.assertRegex(said, r"1 spread-classes.*\n  Thing: tools/room/f0\.cpp, tools/room/f1\.cpp\n")

    def test_a_room_and_all_rooms_have_so_many_lines_at_most(self):
        self.assertEqual(self.check("cuda", "int x;\n" * 120), (False, ""))
        failed, said = self.check("cuda", "int x;\n" * 100, "int y;\n" * 21)
        self.assertEqual((failed, said), (True, "cuda/room: 121 lines, its README's table allows 120\n"))
        self.addCleanup(setattr, house, "MOST_PRODUCT_LINES", house.MOST_PRODUCT_LINES)
        house.MOST_PRODUCT_LINES = 99
        failed, said = self.check("cuda", "int x;\n" * 100)
        self.assertTrue(failed)
        self.assertRegex(said, r"^100 lines of C\+\+ in .*: at most 99\n$")

    def test_an_allowance_is_a_ceiling_that_only_falls(self):
        house.ALLOWANCES.write_text("core/room old-words 2\n")
        two = "// whoever\n// whatever\n"
        self.assertEqual(self.check("core", two), (False, ""))
        self.assertTrue(self.check("core", two + "// told\n")[0])
        (self.root / "core/room/f.cpp").write_text("// whoever\n")
        house.check(True)
        self.assertEqual(house.ALLOWANCES.read_text(), "core/room old-words 1\n")


if __name__ == "__main__":
    unittest.main()
