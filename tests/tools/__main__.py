"""``python -m tests.tools build [NAME...]`` and ``python -m tests.tools path NAME``.

Standard library only: `make tools` runs it before there is a virtual environment.
"""

import argparse
import sys

from tests.tools.builder import BuildError, build
from tests.tools.cache import find


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools")
    commands = parser.add_subparsers(dest="command", required=True)
    builds = commands.add_parser("build", help="build the Go programs that the tests run")
    builds.add_argument("names", nargs="*", help="modules or programs; all when none is named")
    shows = commands.add_parser("path", help="print where a built program lies")
    shows.add_argument("name")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build(arguments.names)
            return 0
        path = find(arguments.name)
    except (BuildError, ValueError) as refused:
        print(f"tools: {refused}", file=sys.stderr)
        return 1
    if path is None:
        print(f"tools: {arguments.name} is not built yet: make tools", file=sys.stderr)
        return 1
    print(path)
    return 0


sys.exit(main())
