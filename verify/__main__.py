"""`python -m verify` is the command `verify`."""

from verify.cli import main

raise SystemExit(main())
