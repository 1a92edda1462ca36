"""Guidelines and threads by the API, and Markdown of somebody who wishes harm."""

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.guidance import LONGEST_TEXT
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.web.markdown import rendered, summary
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person

Sign = Callable[[str], Person]
API = "/api/campaigns/animals"
TAGS = {
    "p",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "blockquote",
    "hr",
    "br",
    "a",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ATTRIBUTES = {
    "a": {"href", "rel", "target", "title"},
    "ol": {"start"},
    "code": {"class"},
    "th": {"class"},
    "td": {"class"},
}


class Active(HTMLParser):
    """Reads HTML as a browser does, and remembers what could run, load or change the page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, set()):
                self.wrong.append(f"<{tag} {name}>")
            if name == "href":
                self.links.append(str(value))
                if not re.match(r"(https?://|mailto:)", str(value), re.IGNORECASE):
                    self.wrong.append(f"link to {value}")
        if tag == "a" and ("rel", "noopener noreferrer") not in attrs:
            self.wrong.append("a link that hands over the window")

    def handle_decl(self, decl: str) -> None:
        self.wrong.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.wrong.append(f"<?{data}>")

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"<!--{data}-->")


def active(text: str) -> Active:
    found = Active()
    found.feed(rendered(text))
    found.close()
    return found


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<style>*{display:none}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<!-- x --><!DOCTYPE x><?php x ?>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java&#x0A;script:alert(1))",
    "[x](\tjavascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](/api/session)",
    "[x](https:javascript:alert(1))",
    "<javascript:alert(1)>",
    "<data:text/html,x>",
    "[x]: javascript:alert(1)\n\n[x]",
    '[x](https://a.example "t\\" onmouseover=\\"alert(1)")',
    '[x](https://a.example/"onclick="x)',
    "![x](https://tracker.example/1.png)",
    "![x](javascript:alert(1))",
    "[![x](data:image/svg+xml,x)](https://a.example)",
    '```html"onload="x\n<script>\n```',
    "| a |\n|:-:|\n| <b onclick=x>y</b> |",
    "`<script>`",
    "\\<script>alert(1)\\</script>",
    "&lt;script&gt;",
    "[x](https://a.example/<script>)",
    "<https://a.example/'onclick='x>",
    "# <script>x</script> [y](javascript:z)",
    "[a](mailto:a@b.example?subject=<script>)",
    "\u2028<script>\u2028",
    "<scr\x01ipt>",
    "[x](\x01javascript:alert(1))",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_no_attack_becomes_active(text: str) -> None:
    assert active(text).wrong == []


HUGE = {
    "quotes": ">" * LONGEST_TEXT,
    "brackets": "[" * LONGEST_TEXT,
    "links": "[a](" * (LONGEST_TEXT // 4),
    "stars": "*a_" * 5000,
    "lists": "- " * 7500,
    "ticks": "".join("`" * k + " " for k in range(1, 170)),
    "images": "![" * 7500,
    "less": "<" * LONGEST_TEXT,
    "and": "&" * LONGEST_TEXT,
    "nested": "\n".join(" " * k + "- a" for k in range(165)),
    "table": "|x|\n|-|\n" + "|\n" * 4000,
    "references": "[a]: http://x.example\n" * 500 + "[a]" * 1000,
    "both": "<b>" * 2500 + "</b>" * 1800,
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_nesting_is_shown_and_ends(name: str) -> None:
    assert active(HUGE[name][:LONGEST_TEXT]).wrong == []
    summary(HUGE[name][:LONGEST_TEXT])


_PARTS = st.sampled_from(
    [
        *ATTACKS,
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "`",
        "*",
        "_",
        "~~",
        "|",
        "\n",
        "\n\n",
        "- ",
        "> ",
        "# ",
        "![",
        "](",
        "http://",
        "&#",
        "javascript:",
        "data:",
        '"',
        "'",
        "\\",
        "    ",
        "---",
        "\t",
        "x",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_PARTS | st.text(max_size=8), max_size=30).map("".join))
def test_no_mixture_becomes_active(text: str) -> None:
    assert active(text).wrong == []


def test_markdown_that_is_meant_is_shown() -> None:
    html = rendered("# A\n\n**b** *c* ~~d~~ `e` [f](https://g.example)\n\n- h\n\n> i\n\n|j|k|\n|-|-:|\n|1|2|\n")
    for part in (
        "<h3>A</h3>",
        "<strong>b</strong>",
        "<em>c</em>",
        "<s>d</s>",
        "<code>e</code>",
        "<li>h</li>",
        "<blockquote>",
    ):
        assert part in html
    assert 'href="https://g.example" rel="noopener noreferrer"' in html
    assert '<td class="right">2</td>' in html


def test_guidelines_by_the_api(campaign: CampaignSummary, as_person: Sign) -> None:
    lead, ann = as_person("lead"), as_person("ann")
    put = lead.client.put(f"{API}/guidelines", json={"text": "# Read\n\n<script>x</script>"})
    assert put.status_code == 200, put.text
    assert (
        lead.client.put(f"{API}/guidelines", json={"about": "dog", "text": "Barks. [x](javascript:y)"}).json()[
            "version"
        ]
        == 2
    )
    seen = ann.get(f"{API}/guidelines").json()
    assert seen["html"] == "<h3>Read</h3>\n<p>&lt;script&gt;x&lt;/script&gt;</p>\n"
    assert (seen["version"], seen["seen"], seen["changed_by"]) == (2, 0, "lead")
    dog = next(one for one in seen["classes"] if one["name"] == "dog")
    assert dog["summary"] == "Barks. [x](javascript:y)"
    assert ann.get(f"{API}/news").json() == {"guidelines": 2, "seen": 0, "answers": []}
    assert ann.client.put(f"{API}/seen", json={"guidelines": 2}).status_code == 204
    assert ann.get(f"{API}/news").json()["seen"] == 2
    assert len(lead.get(f"{API}/guidelines/versions").json()["entries"]) == 2
    page = lead.get(f"{API}/guidelines/versions?limit=1").json()
    assert page["entries"][0]["about"] == "dog"
    assert lead.get(f"{API}/guidelines/versions?limit=1&after={page['next']}").json()["entries"][0]["about"] is None
    assert lead.post(f"{API}/guidelines/preview", {"text": "*a*"}).json() == {"html": "<p><em>a</em></p>\n"}
    wrong = lead.client.put(f"{API}/guidelines", json={"about": "cat food", "text": "x"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "class_name")
    assert lead.client.put(f"{API}/guidelines", json={"text": "x" * (LONGEST_TEXT + 1)}).status_code == 422
    assert ann.client.put(f"{API}/guidelines", json={"text": "mine"}).status_code == 403
    assert ann.get("/c/animals/lead/settings").status_code == 403


def test_a_thread_by_the_api(ws: Workspace, campaign: CampaignSummary, as_person: Sign) -> None:
    lead, ann, bob = as_person("lead"), as_person("ann"), as_person("bob")
    task = ann.post(f"{API}/next", {"n": 1}).json()["tasks"][0]
    path = f"{API}/threads/{task['item']}"
    assert task["batch"] == {"mine": 0, "answered": 0, "wanted": 4}
    said = ann.post(path, {"text": "<b>What</b> is this?"}).json()
    assert [one["text"] for one in said["comments"]] == ["<b>What</b> is this?"]
    assert bob.get(path).status_code == 404, "it was not given to him"
    assert bob.post(path, {"text": "hello"}).status_code == 404
    assert bob.get(f"{API}/threads").status_code == 403
    open_ones = lead.get(f"{API}/threads").json()["entries"]
    assert [one["item"] for one in open_ones] == [task["item"]]
    answer = lead.post(path, {"text": "A cow."}).json()["comments"][-1]
    assert ann.get(f"{API}/news").json()["answers"] == [{"item": task["item"], "count": 1}]
    assert ann.client.put(f"{API}/seen", json={"item": task["item"], "comment": answer["id"]}).status_code == 204
    assert ann.get(f"{API}/news").json()["answers"] == []
    lead.post(path, {"text": "Or an ox."})
    assert ann.client.put(f"{API}/seen", json={"item": task["item"], "comment": answer["id"]}).status_code == 204
    assert ann.get(f"{API}/news").json()["answers"] == [{"item": task["item"], "count": 1}], (
        "it came after she had read"
    )
    assert ann.client.put(f"{API}/seen", json={"item": task["item"]}).status_code == 204
    assert ann.get(f"{API}/news").json()["answers"] == []
    hidden = lead.client.patch(f"{API}/comments/{answer['id']}", json={"hidden": True})
    assert hidden.json()["comments"][-2]["hidden"] is True
    assert "A cow." not in ann.get(path).text
    assert lead.client.patch(path, json={"resolved": True}).json()["resolved"] is True
    assert ann.client.patch(path, json={"resolved": True}).status_code == 403
    assert lead.get(f"{API}/threads").json()["entries"] == []
    voted = ann.post(f"{API}/votes", {"item": task["item"], "label": 0, "note": "a guess", "n": 1}).json()
    assert voted["next"]["tasks"][0]["batch"] == {"mine": 1, "answered": 1, "wanted": 4}
    for k in range(20):
        ann.post(path, {"text": f"Comment {k}"})
    assert (refused := ann.post(path, {"text": "more"})).status_code == 429
    assert (refused.json()["code"], int(refused.headers["retry-after"]) > 0) == ("comments", True)
    assert (refused := lead.post(path, {"text": "  "})).status_code == 422
    assert refused.json()["code"] == "comment"


def test_an_annotator_reads_no_vote_and_no_note_of_others(
    ws: Workspace, campaign: CampaignSummary, as_person: Sign
) -> None:
    ann, bob = as_person("ann"), as_person("bob")
    item = ann.post(f"{API}/next", {"n": 1}).json()["tasks"][0]["item"]
    ann.post(f"{API}/votes", {"item": item, "label": 2, "note": "surely a cow", "n": 1})
    ann.post(f"{API}/undo")
    ann.post(f"{API}/skip", {"item": item, "n": 1})
    given = next_tasks(ws, "animals", "bob", 10)
    assert isinstance(given, list)
    assert item in [one.item for one in given]
    ann.post(f"{API}/votes", {"item": item, "label": 2, "note": "surely a cow", "n": 1})
    thread = bob.get(f"{API}/threads/{item}")
    assert thread.status_code == 200
    assert "surely" not in thread.text
    assert "ann" not in thread.text
