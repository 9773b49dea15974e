"""python -m kvservice: the command `kvservice` where the package is not installed but lies on the path."""

from kvservice.cli import main

if __name__ == "__main__":
    main()
