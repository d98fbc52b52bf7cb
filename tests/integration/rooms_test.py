"""The rooms: what the READMEs say a room sees, what the build lets it see, and what its files include are one thing."""

import re

from harness import SOURCE, TestCase, main

README_FOLDERS = ("core", "cuda", "injection", "tools")
BUILD_FILES = ("core/CMakeLists.txt", "cuda/CMakeLists.txt", "injection/CMakeLists.txt", "tools/CMakeLists.txt")
NO_ROOM = {"cuda_headers"}  # headers of NVIDIA, not ours


def tables():
    """{room: rooms that it sees} as the READMEs have it."""
    rooms = {}
    for folder in README_FOLDERS:
        table = re.search(r"(?m)^\| room \|.*\n(?:\|.*\n)*", (SOURCE / folder / "README.md").read_text())[0]
        for cells in re.findall(r"(?m)^\| (.*) \|$", table)[1:]:
            cells = cells.split(" | ")
            name = re.sub(r"\[(\w+)\]\(.*\)", r"\1", cells[0])
            if name != "simgpu":
                rooms[name] = set() if cells[2] == "-" else set(cells[2].split(", "))
    return rooms


def builds():
    """({room: rooms that it sees}, {room: its folder}) as the build has it."""
    sees, folders = {}, {}
    for file in BUILD_FILES:
        for call in re.findall(r"mfu_room\(([^)]*)\)", (SOURCE / file).read_text()):
            words = re.sub(r"\$\{[^}]*\}|\$<[^>]*>", "", call).split()
            lists, key = {}, None
            for word in words[1:]:
                if word in ("PATH", "SEES", "PRIVATE", "EXCLUDE", "SOURCES", "SMALL"):
                    key = word
                else:
                    lists.setdefault(key, []).append(word)
            sees[words[0]] = set(lists.get("SEES", []))
            folders[words[0]] = lists.get("PATH", ["core/" + words[0]])[0]
    return sees, folders


class Rooms(TestCase):
    def test_the_tables_say_what_the_build_does(self):
        sees, _ = builds()
        documented = tables()
        self.assertGreater(len(documented), 15)
        self.assertEqual(documented, sees)

    def test_files_include_only_what_their_room_sees(self):
        sees, folders = builds()
        core = {room for room, folder in folders.items() if folder.startswith("core/")}
        by_folder = {folder: room for room, folder in folders.items()}
        checked = 0
        for room, folder in folders.items():
            allowed = {room} | sees[room] - NO_ROOM
            if "core" in allowed:
                allowed |= core
            if room == "commands":
                allowed |= {"demo", "cuda", "exposition"}  # added where the build has CUDA's headers; one header of serve
            for file in sorted((SOURCE / folder).rglob("*")):
                if file.suffix not in (".h", ".cpp") or by_folder.get(str(file.parent.relative_to(SOURCE)), room) != room:
                    continue  # no code, or of a room inside this one
                for include in re.findall(r'(?m)^#include "(\S+)"', file.read_text()):
                    parts = include.split("/")
                    target = by_folder.get("/".join(parts[:2])) or by_folder.get(parts[0])
                    checked += 1
                    with self.subTest(file=str(file.relative_to(SOURCE)), include=include):
                        self.assertIn(target, allowed)
        self.assertGreater(checked, 400)

    def test_every_room_has_a_readme(self):
        _, folders = builds()
        for room, folder in folders.items():
            self.assertTrue((SOURCE / folder / "README.md").exists(), folder)


if __name__ == "__main__":
    main()
