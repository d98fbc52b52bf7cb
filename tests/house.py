"""What `tests/lint house` holds: how long functions, how big classes and how large rooms may be, and which words stay out.

A rule that is broken already has an allowance per room in tests/house.txt, which only falls: `tests/lint --fix` writes
today's smaller counts. The lines of a room are the column `lines` of the table that its README is in.
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
ALLOWANCES = SOURCE / "tests/house.txt"
FOLDERS = ("core", "cuda", "injection", "tools")
MOST_FUNCTION_LINES = 80
MOST_MEMBERS = 30
MOST_PRODUCT_LINES = 70_000
# Comments have a subject and a verb that a stranger knows; CONTRIBUTING.md has the words to use instead.
OLD_WORDS = re.compile(
    r"(?i)\b(tells|told|goes out|went out|gives out|stands? aside|of (?:theirs|ours|its own|their own)|seldomer|it is said|"
    r"in the way|lies beside|nobody knows|whoever|whatever|the one before it|stands)\b|(?:^|[.:;] )What (?!is (?:not )?\w+ed\b)"
)
# A host's locale has a comma for the point, and changes while the library runs: fmt, std::from_chars and json read no locale.
LOCALE_WORDS = re.compile(
    r"\b(strto(?:f|d|ld)|atof|sto(?:f|d|ld)|(?:set|use|new)locale|localeconv|std::locale)\b|"
    r"#\s*include\s*<(?:[iof]?stream|iostream|[sf]stream|iomanip|locale|clocale|locale\.h)>"
)
FLOAT_FORMAT = re.compile(r'printf\s*\([^;]*?"[^"\n]*%[-+ #0-9.*]*l?[aefgAEFG]')
LOCALE_FREE = ("core", "cuda", "injection")
# A name out of a file may hold what a terminal obeys: say() of core/base/say.h makes it printable.
RAW_PRINTS = re.compile(r"\b(?:v?f?printf|f?puts|fwrite|f?putc|putchar|perror)\s*\(|\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b")
PRINTS_ITSELF = ("tools/commands/output_file.cpp", "tools/demo/", "tools/simgpu/")
HOT_WORDS = re.compile(r"\b(__asm__|asm volatile|__builtin_prefetch|noinline|always_inline)\b")
# Comments, raw strings, strings and characters, in the order in which they can hide each other.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'', re.S)
TYPE = re.compile(r"\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s+|alignas\([^)]*\)\s+)*([\w:]+)(?:\s+final)?(?:\s*:(?!:).*)?$",
                  re.S)
BODY = re.compile(r"\)\s*(?:const|noexcept|override|final|mutable|->.*|requires.*|:(?!:).*|&|\s)*$", re.S)
INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]$", re.S)
METHOD = re.compile(r"\b([A-Z]\w*)::~?\w+\s*\(|\b([A-Z]\w*)::operator")
NO_MEMBER = re.compile(r"^(?:using|typedef|friend|static|template|enum|struct|class|union|public|private|protected|#)\b")


def without_hidden(text):
    """`text` with the inside of comments and strings blanked; lines stay where they are."""
    return HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def declarators(statement):
    """How many data members `statement` declares."""
    statement = re.sub(r"^\s*(?:public|private|protected)\s*:", "", statement).strip()
    head = re.split(r"[={]", statement, maxsplit=1)[0]
    flat = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", re.sub(r"\([^()]*\)(?=[^<>]*>)", "", head)))
    if not statement or NO_MEMBER.match(statement) or "(" in flat or "operator" in flat:
        return 0
    depth, count = 0, 1
    for c in statement:
        depth += (c in "(<{[") - (c in ")>}]")
        count += c == "," and depth == 0
    return count


def kind_of(head):
    """What the `{` behind `head` opens, outside of functions."""
    if "namespace" in head or head.startswith("extern"):
        return "namespace"
    if TYPE.search(head) and not head.endswith(")"):
        return "class"
    if re.search(r"\benum\b", head):
        return "block"
    # Not a function yet: a constructor's initialiser in braces, `A() : b{1}`.
    if BODY.search(head) and not INITIALISER.search(head) and "=" not in re.split(r"\(|operator", head)[0]:
        return "function"
    return "initialiser"


def scan(text):
    """([(line, lines) of functions], [(line, name, members) of classes], {classes that have methods here})."""
    code = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), without_hidden(text))
    functions, classes, owners, scopes = [], [], set(), []  # a scope: [kind, line it begins, name, members]
    line, end, head, head_line, inside = 1, 0, "", 0, 0  # `inside`: scopes that are a function or in one
    for mark in re.finditer("[{};]", code):
        between = code[end : mark.start()]
        inner = scopes[-1][0] if scopes else "namespace"
        if not inside and inner != "initialiser":
            if not head_line and between.strip():
                head_line = line + between[: len(between) - len(between.lstrip())].count("\n")
            head += between
        line += between.count("\n")
        end = mark.end()
        if mark[0] == "{":
            kind, named = "block" if inside or inner == "initialiser" else kind_of(head.strip()), TYPE.search(head.strip())
            if kind == "function" and (owner := METHOD.search(head)):
                owners.add(owner[1] or owner[2])
            inside += inside > 0 or kind == "function"
            scopes.append([kind, head_line or line, named[1] if named else "", 0])
        elif mark[0] == "}" and scopes:
            kind, begin, name, members = scopes.pop()
            inside -= inside > 0
            if kind == "function":
                functions.append((begin, line - begin + 1))
            elif kind == "class":
                classes.append((begin, name, members))
        else:
            kind = ""
            if inner == "class":
                scopes[-1][3] += declarators(head)
        if kind != "initialiser":
            head, head_line = "", 0
    return functions, classes, owners


def rooms():
    """({folder: lines that it may have}, {folder: README}) by the tables of rooms."""
    budgets = {}
    for top in FOLDERS:
        table = re.search(r"(?m)^\| room \|.*\n(?:\|.*\n)*", (SOURCE / top / "README.md").read_text())[0]
        for cells in re.findall(r"(?m)^\| (\[.*) \|$", table):
            cells = cells.split(" | ")
            folder = pathlib.PurePath(top, re.search(r"\((.*)README\.md\)", cells[0])[1])
            budgets[str(folder)] = int(cells[3].replace(",", ""))
    return budgets


def counts():
    """({(room, rule): count}, {room: lines}, what to print of each broken rule)."""
    found, lines, shown, owners = {}, {}, {}, {}
    folders = sorted(rooms(), key=len, reverse=True)

    def add(room, rule, where, n=1):
        found[room, rule] = found.get((room, rule), 0) + n
        shown.setdefault((room, rule), []).append(where)

    for path in sorted(p for top in FOLDERS for p in (SOURCE / top).rglob("*") if p.suffix in (".cpp", ".h", ".inc")):
        name = str(path.relative_to(SOURCE))
        room = next((folder for folder in folders if name.startswith(folder + "/")), name.split("/")[0])
        text = path.read_text()
        lines[room] = lines.get(room, 0) + text.count("\n")
        functions, classes, owned = scan(text)
        for line, length in functions:
            if length > MOST_FUNCTION_LINES:
                add(room, "long-functions", f"{name}:{line}: {length} lines")
        for line, class_name, members in classes:
            if members > MOST_MEMBERS:
                add(room, "big-classes", f"{name}:{line}: {class_name} has {members} members")
        for class_name in owned if path.suffix == ".cpp" else ():
            owners.setdefault((room, class_name), []).append(name)
        if not re.search(r"\bhot\b", text.split("\n", 1)[0]):
            for match in HOT_WORDS.finditer(without_hidden(text)):
                add(room, "hot-words", f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}")
        if name.startswith(tuple(f"{top}/" for top in LOCALE_FREE)):
            for rule, code in ((LOCALE_WORDS, without_hidden(text)), (FLOAT_FORMAT, text)):
                for match in rule.finditer(code):
                    add(room, "locale-words", f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}")
        if name.startswith("tools/") and not name.startswith(PRINTS_ITSELF):
            for match in RAW_PRINTS.finditer(without_hidden(text)):
                add(room, "raw-prints", f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}")
        for number, line in enumerate(text.split("\n"), 1):
            comment = re.search(r"(?:^|\s)//[/!<]*\s*(.*)", line)
            if comment and OLD_WORDS.search(comment[1]):
                add(room, "old-words", f"{name}:{number}: {comment[1]}")
    for (room, class_name), files in owners.items():
        if len(files) > 1:
            add(room, "spread-classes", f"{class_name}: {', '.join(files)}")
    return found, lines, shown


def check(fix):
    found, lines, shown = counts()
    allowed = {(room, rule): int(n) for room, rule, n in map(str.split, ALLOWANCES.read_text().splitlines())}
    wrong = []
    for key, count in sorted(found.items()):
        if count > allowed.get(key, 0):
            wrong.append(f"{key[0]}: {count} {key[1]}, {allowed.get(key, 0)} are allowed (tests/house.txt):")
            wrong += ["  " + where for where in shown[key]]
    for room, budget in rooms().items():
        if lines.get(room, 0) > budget:
            wrong.append(f"{room}: {lines[room]} lines, its README's table allows {budget}")
    if (total := sum(lines.values())) > MOST_PRODUCT_LINES:
        wrong.append(f"{total} lines of C++ in {', '.join(FOLDERS)}: at most {MOST_PRODUCT_LINES}")
    if fix:
        kept = {key: min(count, found.get(key, 0)) for key, count in allowed.items()}
        ALLOWANCES.write_text("".join(f"{room} {rule} {n}\n" for (room, rule), n in sorted(kept.items()) if n))
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(check("--fix" in sys.argv))
