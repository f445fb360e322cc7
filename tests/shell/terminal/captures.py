"""Screens that tests compare with files of captures/; --update writes the files anew."""
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "captures")
UPDATE = "--update" in sys.argv and not sys.argv.remove("--update")


def same_as_capture(test, name, text, comparable=lambda text: text):
    """Fails `test` where the two differ in what `comparable` leaves of them."""
    path = os.path.join(FOLDER, name)
    if UPDATE:
        with open(path, "w") as file:
            file.write(text)
    with open(path) as file:
        test.assertEqual(comparable(text), comparable(file.read()),
                         f"captures/{name} differs from the screen; --update writes it anew")
