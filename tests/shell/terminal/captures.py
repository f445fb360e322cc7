"""Screens that tests compare with files of captures/; --update writes the files anew."""
import contextlib
import os
import sys

from waiting import wait_until

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "captures")
UPDATE = "--update" in sys.argv and not sys.argv.remove("--update")


def same_as_capture(test, name, screen, comparable=lambda text: text):
    """Waits until the text that screen() returns is that of the file, in what `comparable` leaves of them. Fails `test`
    where it does not come to that."""
    path = os.path.join(FOLDER, name)
    if UPDATE:
        with open(path, "w") as file:
            file.write(screen())
    with open(path) as file:
        expected = comparable(file.read())
    with contextlib.suppress(AssertionError):  # the next line says more
        wait_until(lambda: comparable(screen()) == expected, limit_s=60)
    test.assertEqual(comparable(screen()), expected,
                     f"captures/{name} differs from the screen; --update writes it anew")
