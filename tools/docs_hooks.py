"""Hooks of mkdocs: pages that stand outside of docs/ join the site, and Markdown reads as on a code host.

- README.md, CONTRIBUTING.md and CHANGELOG.md are the pages index.md, contributing.md and changelog.md; the results of the
  experiments are pages under their own path. Links are made to fit.
- Nested blocks of lists are indented by two or three spaces, as code hosts read them; Python-Markdown wants four.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

JOINED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Path in the repository → page of the site."""
RESULTS = "experiments/results"
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


class _TwoSpaces(Extension):  # type: ignore[misc]
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Markdown calls
        md.tab_length = 2
        md.build_parser()  # the parts of the parser have read the old length


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension, before all others."""
    config.markdown_extensions = [_TwoSpaces(), *config.markdown_extensions]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/."""
    root = Path(config.config_file_path).parent
    for name, page in JOINED.items():
        files.append(File.generated(config, page, content=(root / name).read_text(encoding="utf-8")))
    for path in sorted((root / RESULTS).iterdir()):
        files.append(File.generated(config, f"{RESULTS}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the links of a page fit the site: they are written for the repository."""
    del config, files
    here = page.file.src_uri
    own = here if here.startswith(RESULTS) else f"docs/{here}"
    written = {page: name for name, page in JOINED.items()}.get(here, own)
    return linked(markdown, written)


def linked(markdown: str, written: str) -> str:
    """The text of the file `written` (its path in the repository) with links that hold on the site.

    >>> linked("[a](docs/text.md#x) [b](CONTRIBUTING.md) ![c](docs/demo.svg) [d](#e) [f](https://g)", "README.md")
    '[a](text.md#x) [b](contributing.md) ![c](demo.svg) [d](#e) [f](https://g)'
    >>> linked("[a](../../docs/method.md) [b](exp2.md)", "experiments/results/exp1.md")
    '[a](../../method.md) [b](exp2.md)'
    >>> linked("[a](../experiments/results/exp1.md)", "docs/method.md")
    '[a](experiments/results/exp1.md)'
    """
    here = PurePosixPath(site_path(written)).parent.as_posix()

    def fitting(link: "re.Match[str]") -> str:
        target = normpath(str(PurePosixPath(written).parent / link[2]))
        return f"{link[1]}{relpath(site_path(target), here)}{link[3]}"

    return _LINK.sub(fitting, markdown)


def site_path(path: str) -> str:
    """The path on the site of a file in the repository; the same path where it is not part of the site."""
    return JOINED.get(path, path.removeprefix("docs/"))
