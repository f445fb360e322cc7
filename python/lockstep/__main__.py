"""`python -m lockstep` is the command `lockstep`."""

from lockstep_autoload.program import main

main()
