"""What is on a simulated disk: a tree of names and files, and what of it is durable.

A change of names is in what everybody sees at once, and durable when its directory is synced. A
volume can be copied as a process that dies leaves it, and as a power cut may.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from zbus.testing.inodes import (
    Choose,
    Directory,
    File,
    NameChange,
    Node,
    crashed_names,
    settled_names,
)


class Volume:
    """What cannot be is an OSError, as everywhere."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self._numbers = 0
        self._root = Directory(0)
        self._names: list[NameChange] = []  # not durable yet

    def number(self) -> int:
        """Of a new file or directory."""
        self._numbers += 1
        return self._numbers

    # -- finding --------------------------------------------------------------------------

    def directory(self, path: Path) -> Directory:
        """The directory of this name."""
        directory = self._root
        for name in path.parts[1:] if path.anchor else path.parts:
            node = directory.names.get(name)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(node, File):
                raise os_error(errno.ENOTDIR, path)
            directory = node
        return directory

    def parent(self, path: Path) -> tuple[Directory, str]:
        """The directory in which something is or is to be, and its name there."""
        return self.directory(path.parent), path.name

    def below(self, directory: Directory) -> list[Directory]:
        """The directory and all within it."""
        found = [directory]
        for node in directory.names.values():
            if isinstance(node, Directory):
                found += self.below(node)
        return found

    def files(self) -> list[Path]:
        """All files, in order."""
        found: list[Path] = []

        def walk(directory: Directory, path: Path) -> None:
            for name, node in sorted(directory.names.items()):
                if isinstance(node, File):
                    found.append(path / name)
                else:
                    walk(node, path / name)

        walk(self._root, Path("/"))
        return found

    def _nodes(self) -> list[Node]:
        nodes: list[Node] = []
        for directory in self.below(self._root):
            nodes.append(directory)
            nodes += [node for node in directory.names.values() if isinstance(node, File)]
        return nodes

    # -- changing -------------------------------------------------------------------------

    def rename(self, *entries: tuple[Directory, str, Node | None]) -> None:
        """Change names together, in what everybody sees."""
        replaced = [directory.names.pop(name, None) for directory, name, _ in entries]
        for directory, name, node in entries:
            if node is not None:
                directory.names[name] = node
                if isinstance(node, File):
                    node.links = 1
        kept = [node for _, _, node in entries if node is not None]
        for node in replaced:
            if isinstance(node, File) and node not in kept:
                node.links = 0
                self.free(node)
        self._names.append(NameChange(entries))

    def free(self, node: File) -> None:
        """Give back what a file takes, if it has neither a name nor an open descriptor."""
        if not node.links and not node.opens:
            self.used_bytes -= node.size

    def settle(self, directory: Directory) -> None:
        """The names of a directory are durable."""
        settled, self._names = settled_names(self._names, directory)
        for change in settled:
            for owner, name, node in change.entries:
                owner.durable.pop(name, None)
                if node is not None:
                    owner.durable[name] = node

    def sync(self) -> None:
        """Everything is durable, but for what a failed sync has put in danger."""
        for node in self._nodes():
            if isinstance(node, File):
                node.sync()
            elif node.syncable:
                self.settle(node)

    def fail_sync(self) -> None:
        """A sync of everything failed."""
        for node in self._nodes():
            if isinstance(node, File):
                node.fail_sync()
            else:
                node.syncable = False

    # -- copies ---------------------------------------------------------------------------

    def copy(self) -> Volume:
        """The same, as a dead process leaves it."""
        other = Volume()
        made: dict[int, Node] = {0: other._root}

        def copy(node: Node) -> Node:
            if node.number in made:
                return made[node.number]
            if isinstance(node, File):
                copied = made[node.number] = node.copy()
                copied.links = node.links
                other.used_bytes += copied.size if node.links else 0
                return copied
            made[node.number] = copied_directory = Directory(node.number)
            fill(node, copied_directory)
            return copied_directory

        def fill(directory: Directory, copied: Directory) -> None:
            copied.names = {name: copy(node) for name, node in directory.names.items()}
            copied.durable = {name: copy(node) for name, node in directory.durable.items()}

        fill(self._root, other._root)
        for change in self._names:
            entries = []
            for directory, name, node in change.entries:
                owner = copy(directory)
                assert isinstance(owner, Directory)
                entries.append((owner, name, None if node is None else copy(node)))
            other._names.append(NameChange(tuple(entries)))
        other._numbers = self._numbers
        return other

    def crashed(self, chooser: Callable[[int], Choose], piece_bytes: int) -> Volume:
        """One of those that a power cut may leave, all of it durable. The chooser is given a number
        of changes, and says how what they are of comes out of it."""
        other = Volume()
        names: dict[int, dict[str, Node]] = {}
        for change in crashed_names(self._names, chooser(len(self._names))):
            for directory, name, node in change.entries:
                here = names.setdefault(directory.number, dict(directory.durable))
                here.pop(name, None)
                if node is not None:
                    here[name] = node

        def fill(directory: Directory, crashed: Directory) -> None:
            for name, node in sorted(names.get(directory.number, directory.durable).items()):
                if isinstance(node, File):
                    file = node.crashed(chooser(len(node.changes)), piece_bytes)
                    file.links = 1
                    other.used_bytes += file.size
                    crashed.names[name] = file
                else:
                    crashed.names[name] = below = Directory(node.number)
                    fill(node, below)
            crashed.durable = dict(crashed.names)

        fill(self._root, other._root)
        other._numbers = self._numbers
        return other


def os_error(number: int, path: Path) -> OSError:
    """What the system says."""
    return OSError(number, os.strerror(number), str(path))
