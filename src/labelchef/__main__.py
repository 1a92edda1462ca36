"""`python -m labelchef`."""

from labelchef.cli.main import run

if __name__ == "__main__":
    run()
