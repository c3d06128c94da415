"""One closing line for all test programs: reads the JUnit files of GoogleTest and pytest and prints their sum.

usage: summary.py <folder with *.xml> [exit status of each program...]
A program that failed without leaving a failed test in its file (it crashed, say) counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


def main():
    passed = failed = skipped = 0
    names = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
        for case in xml.parse(path).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                names.append(f"{path.stem}: {case.get('classname')}.{case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
    if not failed and any(int(status) for status in sys.argv[2:]):
        failed = 1
        names.append("a test program ended abnormally; see above")
    for name in names:
        print("FAILED", name)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
