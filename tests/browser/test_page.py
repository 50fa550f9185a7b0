"""Web page of the server in Chromium, with a real model."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from library import ATTACK, GARDEN_TEXT, TOPICS, labelled, uri
from serving import running

from xmtc.data.corpus import open_corpus

expect = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser").expect
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
TOKEN = "open-sesame-0123456789"
GARDEN, ATTACK_TEXT = "gardening", f"{ATTACK} script malware phishing exploit payload password"


def tag(page, text: str = GARDEN_TEXT) -> None:
    page.fill("#text", text)
    page.click("#tag")
    page.wait_for_selector("#answer[aria-busy=false] #tags > li")


def names(page) -> list[str]:
    return page.locator("#tags .name").all_inner_texts()


def explain(page, name: str) -> None:
    page.locator("#tags .tag", has_text=name).click()
    page.wait_for_selector("#marked:not([hidden])")


def answers(page, **answer) -> None:
    """Make the server return given responses to the next predictions."""
    page.route("**/predict", lambda route: route.fulfill(**answer))


def table(path: Path, n_rows: int) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "title", "text"])
        rows.writerows([each["id"], "a title", each["text"]] for each in labelled(n_rows, seed=2))
    return path


def downloaded(page, button: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(button)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_text_is_tagged(page):
    assert page.locator("#empty").is_visible()
    tag(page)
    assert names(page)[0] == GARDEN
    assert len(names(page)) == len(TOPICS)
    assert not page.locator("#empty").is_visible()
    assert page.locator("#status").inner_text() == f"{len(TOPICS)} tags found"

    assert page.locator("#kind-of-score").inner_text() == "probability"
    percent = float(page.locator("#tags .score").first.inner_text().removesuffix(" %"))
    share = "meter => meter.firstElementChild.offsetWidth / meter.offsetWidth"
    assert page.locator("#tags .meter").first.evaluate(share) == pytest.approx(percent / 100, abs=0.02)


def test_only_the_newest_of_two_requests_is_shown(page):
    """Else tags of the older one can be opened, and are replaced under their explanation."""
    models, predictions = [], []
    page.route("**/v1/models", lambda route: models.append(route))
    page.fill("#text", GARDEN_TEXT)
    page.click("#tag")
    wait_for(page, models)
    page.route("**/predict", lambda route: predictions.append(route))
    page.click("#tag")
    wait_for(page, predictions)
    page.unroute("**/v1/models")
    models[0].continue_()
    page.wait_for_timeout(300)
    assert page.locator("#answer").get_attribute("aria-busy") == "true"
    predictions[0].continue_()
    page.wait_for_selector("#answer[aria-busy=false] #tags > li")


def wait_for(page, requests: list) -> None:
    for _ in range(100):
        if requests:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page sent no request")


def test_tag_is_explained(page):
    tag(page, f"🚀🚀 {GARDEN_TEXT}")  # JavaScript counts it as two characters
    explain(page, GARDEN)
    marked = {word.lower() for word in page.locator("#marked mark").all_inner_texts()}
    assert {"roses", "tulips", "soil"} <= marked <= set(TOPICS["garden"][2].split())
    assert page.locator("#marked").inner_text() == f"🚀🚀 {GARDEN_TEXT}"
    assert "roses" in page.locator(".why:not([hidden])").inner_text().lower()
    assert page.locator("#marked-title").inner_text() == f"Words that count for {GARDEN}"

    page.click("#edit")
    assert page.locator("#text").is_visible()
    assert not page.locator("#marked").is_visible()


def test_strongest_part_of_a_word_is_bold(page):
    cut = """import("./static/highlight.js").then(({ markedText }) => {
      const words = [
        { spans: [[5, 9], [0, 4]], weights: [1, 2], parts: [[6, 8], null] },
        { spans: [[10, 11]], weights: [-1], parts: [null] },
      ];
      const marks = [...markedText("blue rose x", words).children];
      return marks.map((mark) => [mark.innerHTML, mark.style.getPropertyValue("--w"), mark.className]);
    })"""
    found = [["blue", "1.00", ""], ["r<b>os</b>e", "0.50", ""], ["x", "0.50", "against"]]
    assert page.evaluate(cut) == found


def test_probabilities_are_shown_in_percent(page):
    """Scores that are not probabilities are shown unchanged."""
    ask = """import("./static/tags.js").then(({ scoreOf }) =>
      [[0.934, true], [0.001, true], [0.934, false], [0.001, false], [-1.5, false]].map((each) => scoreOf(...each)))"""
    assert page.evaluate(ask) == ["93 %", "< 1 %", "0.93", "< 0.01", "−1.50"]


def test_length_of_bars_shows_the_score(page):
    """Scores without a scale are shown between the worst and the best."""
    ask = """import("./static/tags.js").then(({ barOf }) =>
      [[0.3, 0.1], [7, -2], [-2, 7], [7, 7]].map(([score, other]) => barOf(score, [{ score }, { score: other }])))"""
    assert page.evaluate(ask) == pytest.approx([0.3, 1, 0.1, 1])


def test_settings_are_applied(page):
    tag(page)
    page.fill("#k", "2")
    page.keyboard.press("Enter")
    expect(page.locator("#tags > li")).to_have_count(2)

    page.select_option("#language", "fi")
    page.get_by_role("button", name=TOPICS["garden"][1]).first.wait_for()

    page.select_option("#decision", "above")
    page.fill("#threshold", "0.9")
    page.keyboard.press("Enter")
    expect(page.locator("#tags > li")).to_have_count(1)

    page.reload()
    page.wait_for_selector("body.ready")
    assert [page.input_value(f"#{field}") for field in ("k", "language", "decision")] == ["2", "fi", "above"]


def test_numbers_out_of_range_are_corrected(page):
    for field, given, mended in (("k", "7000", "100"), ("k", "2.7", "3"), ("k", "", "8")):
        page.fill(f"#{field}", given)
        page.keyboard.press("Tab")
        assert page.input_value(f"#{field}") == mended


def test_tuned_thresholds(page):
    tag(page)
    page.select_option("#decision", label="tags above thresholds tuned for F1")
    expect(page.locator("#tags .name")).to_have_text([GARDEN])
    assert not page.locator("#k").is_visible()


def test_unavailable_features_are_hidden(visit, server):
    """The model has raw scores, no thresholds, no explanations, no languages and no report."""
    page = visit(server)
    about = page.evaluate("fetch('v1/models').then(answer => answer.json())")
    about["models"][0] |= {"calibrated": False, "decision": None, "explains": False, "languages": [], "report": False}
    page.route("**/v1/models", lambda route: route.fulfill(json=about))
    page.reload()
    page.wait_for_selector("body.ready")
    tag(page)
    assert page.locator("#kind-of-score").inner_text() == "score"
    assert float(page.locator("#tags .score").first.inner_text()) <= 1
    assert page.locator("#decision option:not([hidden])").count() == 2
    assert page.locator("button.tag, #language:visible, #report:visible, #keys:visible").count() == 0


def test_labels_of_a_changed_text_are_marked_as_outdated(page):
    tag(page)
    page.fill("#text", "A violin and a cello.")
    assert page.locator("#stale").is_visible()
    assert page.locator("#tags").evaluate("list => list.inert")
    page.click("#again")
    expect(page.locator("#tags .name").first).to_have_text(TOPICS["music"][0])
    assert not page.locator("#stale").is_visible()


def test_text_without_labels_is_reported(page):
    page.fill("#text", "zzzz qqqq")
    page.click("#tag")
    expect(page.locator("#none")).to_have_text("No tags: the model knows no word of this text.")
    page.select_option("#decision", "above")
    expect(page.locator("#none")).to_have_text("No tag has a score above 0.5.")
    assert page.locator("#add").is_visible()  # users can add labels themselves


def test_files_of_one_document_are_tagged(page, tmp_path):
    (tmp_path / "note.txt").write_text(GARDEN_TEXT)
    page.set_input_files("#file", tmp_path / "note.txt")
    page.wait_for_selector("#tags > li")
    assert page.input_value("#text") == GARDEN_TEXT
    assert names(page)[0] == GARDEN
    assert not page.locator("#back").is_visible()


def test_assumed_encoding_is_shown_and_can_be_changed(page, tmp_path):
    text = f"{GARDEN_TEXT} Tämä löytyy myös äidin pöydältä."
    (tmp_path / "note.txt").write_bytes(text.encode("cp1252"))
    page.set_input_files("#file", tmp_path / "note.txt")
    page.wait_for_selector("#tags > li")
    assert page.input_value("#text") == text
    assert "is read as windows-1252 (Tämä, löytyy, myös)" in page.locator("#read-as").inner_text()
    page.get_by_label("Encoding").select_option("mac-roman")
    expect(page.locator("#text")).to_have_value(text.encode("cp1252").decode("mac-roman"))
    page.get_by_label("Encoding").select_option("windows-1252")
    expect(page.locator("#text")).to_have_value(text)
    page.click("#clear")
    assert not page.locator("#read-as").is_visible()


def test_several_files_are_tagged(page, tmp_path):
    for topic in ("music", "law"):
        (tmp_path / f"{topic}.txt").write_text(TOPICS[topic][2])
    page.set_input_files("#file", [tmp_path / "music.txt", tmp_path / "law.txt"])
    page.get_by_text("2 documents tagged").first.wait_for()
    assert page.locator("#rows button").all_inner_texts() == ["music", "law"]
    best = [row.locator("bdi").first.inner_text() for row in page.locator("#rows tr").all()]
    assert best == [TOPICS["music"][0], TOPICS["law"][0]]


def test_pdf_is_tagged(visit, server, tmp_path):
    pytest.importorskip("pypdf", reason="PDF needs xmtc[documents]")
    printed = visit(server)
    printed.fill("#text", GARDEN_TEXT)
    printed.evaluate("text => document.body.replaceChildren(text)", GARDEN_TEXT)
    printed.pdf(path=tmp_path / "note.pdf")

    page = visit(server)
    page.set_input_files("#file", tmp_path / "note.pdf")
    page.wait_for_selector("#tags > li")
    assert names(page)[0] == GARDEN


def test_dropped_file_is_tagged(page):
    drop = """text => {
      const files = new DataTransfer();
      files.items.add(new File([text], "note.txt", { type: "text/plain" }));
      for (const kind of ["dragenter", "dragover", "drop"])
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(drop, GARDEN_TEXT)
    page.wait_for_selector("#tags > li")
    assert names(page)[0] == GARDEN
    assert not page.locator("#drop").is_visible()


def test_table_is_tagged_and_downloaded(page, tmp_path):
    page.set_input_files("#file", table(tmp_path / "books.csv", 70))
    page.get_by_text("70 documents tagged").first.wait_for()
    assert page.locator("#rows tr").count() == 70
    first = page.locator("#rows tr").first
    assert first.locator("button").inner_text() == "book 0"
    best = first.locator(".chips bdi").first.inner_text()

    name, content = downloaded(page, "[data-format=csv]")
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    assert name == "tags.csv"
    assert len(rows) == 70
    assert best in rows[0].values()

    name, content = downloaded(page, "[data-format=jsonl]")
    assert name == "tags.jsonl"
    assert json.loads(content.splitlines()[0])["id"] == "book 0"

    name, content = downloaded(page, "[data-format=xlsx]")
    assert name == "tags.xlsx"
    assert content.startswith(b"PK")


def test_text_column_can_be_selected(page, tmp_path):
    page.set_input_files("#file", table(tmp_path / "books.csv", 3))
    page.get_by_text("3 documents tagged").first.wait_for()
    assert page.input_value("#column") == "text"
    page.select_option("#column", "title")
    expect(page.locator("#rows .excerpt").first).to_have_text("a title")


def test_document_of_a_table_is_shown(page, tmp_path):
    page.set_input_files("#file", table(tmp_path / "books.csv", 3))
    page.get_by_text("3 documents tagged").first.wait_for()
    page.locator("#rows button").nth(1).click()
    page.wait_for_selector("#tags > li")
    assert page.input_value("#text") == labelled(3, seed=2)[1]["text"]
    page.fill("#k", "1")
    page.keyboard.press("Enter")
    page.click("#back")
    assert page.locator("#rows tr").count() == 3
    expect(page.locator("#rows .chips li")).to_have_count(3)  # with the current settings
    page.click("#close-many")
    assert page.locator("#text").is_visible()
    assert not page.locator("#back").is_visible()


def test_run_is_cancelled_and_resumed(page, tmp_path):
    asked = []

    def slowly(route):
        asked.append(route)
        if len(asked) == 1:
            route.continue_()  # the second request never ends

    page.route("**/predict", slowly)
    page.set_input_files("#file", table(tmp_path / "books.csv", 70))
    page.get_by_text("32 of 70 documents").first.wait_for()
    assert page.locator("#progress").evaluate("bar => bar.value / bar.max") == pytest.approx(32 / 70)
    page.click("#cancel")
    page.get_by_text("Stopped at 32 of 70 documents").first.wait_for()
    assert not page.locator("#error").is_visible()
    _, content = downloaded(page, "[data-format=jsonl]")
    assert len(content.splitlines()) == 32

    page.unroute("**/predict")
    page.click("#resume")
    page.get_by_text("70 documents tagged").first.wait_for()
    assert page.locator("#rows .chips").count() == 70


def test_busy_server_is_retried(page, tmp_path):
    turns = iter([503, 429])

    def busy(route):
        status = next(turns, None)
        error = {"error": {"status": status, "message": "Busy."}}
        route.fulfill(status=status, json=error, headers={"Retry-After": "1"}) if status else route.continue_()

    page.route("**/predict", busy)
    page.set_input_files("#file", table(tmp_path / "books.csv", 3))
    page.get_by_text("The server is busy: continuing in 1 second").first.wait_for()
    page.get_by_text("3 documents tagged").first.wait_for()
    assert next(turns, None) is None  # both errors were received, and each document was requested again
    assert page.locator("#rows .chips").count() == 3
    assert not page.locator("#error").is_visible()


def test_feedback_is_downloaded_as_a_corpus(page, tmp_path):
    tag(page)
    page.get_by_role("button", name=f"{GARDEN} is right").click()
    page.get_by_role("button", name="shipping is right").click()
    page.get_by_role("button", name="shipping is wrong").click()
    page.fill("#k", "1")
    page.keyboard.press("Enter")
    expect(page.locator("#tags > li")).to_have_count(1)

    page.fill("#search", "bread")
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("Enter")
    assert names(page) == [GARDEN, TOPICS["bread"][0]]
    assert page.locator("#tags .score").last.inner_text() == "added"
    assert page.locator("#n-feedback").inner_text() == "1"

    page.reload()
    page.wait_for_selector("body.ready")
    page.click("#open-feedback")
    name, content = downloaded(page, "#export")
    assert name == "feedback-library.jsonl"
    expected = {"text": GARDEN_TEXT, "labels": [uri("garden"), uri("bread")], "rejected": [uri("ships")]}
    assert json.loads(content) == expected

    (tmp_path / name).write_bytes(content)
    assert [document.labels for document in open_corpus(tmp_path / name)] == [[uri("garden"), uri("bread")]]

    page.click("#forget")
    page.get_by_role("button", name="Delete 1 text permanently?").click()
    assert page.get_by_text("Nothing yet").is_visible()
    assert page.locator("#export").is_disabled()


def test_feedback_can_be_undone(page):
    tag(page)
    right = page.get_by_role("button", name=f"{GARDEN} is right")
    right.click()
    assert right.get_attribute("aria-pressed") == "true"
    right.click()
    assert right.get_attribute("aria-pressed") == "false"
    assert not page.locator("#n-feedback").is_visible()


def test_errors_say_what_to_do(page):
    page.click("#tag")
    assert "There is no text yet" in page.get_by_role("alert").inner_text()

    sentence = "The server is busy; try again in a moment."
    answers(page, status=503, json={"error": {"status": 503, "message": sentence}})
    page.fill("#text", GARDEN_TEXT)
    page.click("#tag")
    page.get_by_text(sentence).wait_for()
    assert page.locator("#empty").is_visible()

    page.unroute("**/predict")
    page.click("#retry")
    page.wait_for_selector("#tags > li")
    assert not page.locator("#error").is_visible()


def test_internal_server_error_is_shown(page, tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    page.set_input_files("#file", tmp_path / "picture.png")
    page.get_by_role("alert").get_by_text("Unsupported file type").wait_for()
    page.click("#dismiss")
    assert not page.locator("#error").is_visible()


def test_unreachable_server_is_shown(page):
    page.route("**/predict", lambda route: route.abort())
    page.fill("#text", GARDEN_TEXT)
    page.click("#tag")
    page.get_by_text("The server cannot be reached.").wait_for()
    answers(page, status=502, body="<h1>Bad gateway</h1>", content_type="text/html")
    page.click("#retry")
    page.get_by_text("The server answered 502 Bad Gateway.").wait_for()
    assert page.input_value("#text") == GARDEN_TEXT  # the input is kept


def focused(page) -> str:
    return page.evaluate("(({ id, className }) => id ? `#${id}` : `.${className}`)(document.activeElement)")


def tab_to(page, where: str) -> None:
    """Press the Tab key until an element is focused, within a few steps."""
    passed = []
    while focused(page) != where:
        passed.append(focused(page))
        assert len(passed) < 12, f"{where} does not come after {passed}"
        page.keyboard.press("Tab")


def test_page_works_with_the_keyboard(page):
    tab_to(page, ".skip")
    page.keyboard.press("Enter")
    assert focused(page) == "#text"
    page.keyboard.type(GARDEN_TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#tags > li")

    tab_to(page, ".tag")
    page.keyboard.press("Enter")
    page.wait_for_selector("#marked:not([hidden])")
    page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("-")
    assert page.locator("#tags .thumb[aria-pressed=true]").evaluate_all("all => all.map(each => each.ariaLabel)") == [
        f"{names(page)[0]} is right",
        f"{names(page)[1]} is wrong",
    ]
    page.keyboard.press("Escape")
    assert page.locator("#text").is_visible()

    page.locator("#tags .thumb").last.focus()
    tab_to(page, "#search")
    page.keyboard.type("con")
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("ArrowUp")  # from the first to the last
    assert page.locator("#found li").last.get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    added = page.get_by_role("button", name=f"{TOPICS['law'][0]} is right")
    assert added.get_attribute("aria-pressed") == "true"
    assert focused(page) == "#search"

    page.evaluate("document.activeElement.blur()")
    tab_to(page, "#open-feedback")
    page.keyboard.press("Enter")
    tab_to(page, "#export")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    assert json.loads(Path(waiting.value.path()).read_text())["labels"] == [uri("garden"), uri("law")]
    page.keyboard.press("Escape")
    assert focused(page) == "#open-feedback"


def test_names_and_texts_are_not_executed(page, tmp_path):
    tag(page, ATTACK_TEXT)
    assert names(page)[0] == ATTACK
    explain(page, ATTACK)
    page.get_by_role("button", name=f"{ATTACK} is right").click()
    page.fill("#search", "<img")
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("Enter")
    page.click("#open-feedback")
    assert ATTACK in page.locator("#feedback-list").inner_text()
    page.keyboard.press("Escape")

    lines = [{"id": ATTACK, "text": ATTACK_TEXT}, {"id": "b", "text": ATTACK_TEXT}]
    (tmp_path / "books.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page.set_input_files("#file", tmp_path / "books.jsonl")
    page.get_by_text("2 documents tagged").first.wait_for()
    assert page.locator("#rows button").first.inner_text() == ATTACK

    answers(page, status=422, json={"error": {"status": 422, "message": ATTACK}})
    page.select_option("#language", "fi")
    page.get_by_role("alert").get_by_text(ATTACK).wait_for()
    assert page.title() == "xmtc: tags for texts"
    assert page.locator("main img").count() == 0


def test_token_is_requested(library, visit):
    with running(library / "library", "--token", TOKEN, "--report", library / "report.html") as service:
        page = visit(f"{service.url}/", ready=False)
        page.fill("#token-value", "wrong")
        page.keyboard.press("Enter")
        page.get_by_text("This token is not accepted").wait_for()
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("body.ready")
        tag(page)
        assert names(page)[0] == GARDEN
        name, content = downloaded(page, "#report")  # a link cannot contain the token
        assert name == "report.html"
        assert b"Report: parabel on test.jsonl" in content


def test_report_is_linked(page):
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Report").click()
    expect(opened.value.locator("h1")).to_have_text("Report: parabel on test.jsonl")


def test_replaced_model_tags_the_text_again_and_hides_the_old_report(page):
    about = page.request.get(page.url + "v1/models").json()
    page.fill("#text", GARDEN_TEXT)
    page.click("#tag")
    page.wait_for_selector("#tags button.tag")
    assert page.locator("#report").is_visible()
    about["models"][0] |= {"report": False, "version": "another"}
    page.route("**/v1/models", lambda route: route.fulfill(json=about))
    with page.expect_response("**/predict"):
        page.locator("#tags button.tag").first.click()
    page.wait_for_selector("#tags button.tag")
    assert not page.locator("#report").is_visible()
    assert not page.locator("#marked").is_visible()


def states(page, tmp_path):
    """Yield the page in every visible state, with its name."""
    yield "empty"
    page.route("**/predict", lambda route: None)
    page.fill("#text", GARDEN_TEXT)
    page.click("#tag")
    yield "loading"
    page.unroute("**/predict")
    tag(page)
    yield "tags"
    explain(page, GARDEN)
    page.get_by_role("button", name=f"{GARDEN} is right").click()
    page.get_by_role("button", name="shipping is wrong").click()
    yield "explained"
    page.fill("#search", "a")
    page.wait_for_selector("#found [aria-selected=true]")
    yield "search"
    page.keyboard.press("Escape")
    page.click("#open-feedback")
    yield "feedback"
    page.keyboard.press("Escape")
    answers(page, status=503, json={"error": {"status": 503, "message": "The server is busy; try again."}})
    page.click("#tag")
    page.wait_for_selector("#error:not([hidden])")
    yield "error"
    page.unroute("**/predict")
    page.set_input_files("#file", table(tmp_path / "books.csv", 5))
    page.get_by_text("5 documents tagged").first.wait_for()
    yield "table"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_accessibility_violations(visit, server, violations, tmp_path, scheme):
    page = visit(server, color_scheme=scheme)
    for state in states(page, tmp_path):
        assert violations(page) == [], state


def test_page_fits_a_phone(visit, server, violations, tmp_path):
    page = visit(server, **PHONE)
    assert not page.locator("#k").is_visible()  # the settings are folded
    for state in states(page, tmp_path):
        assert page.evaluate("document.documentElement.scrollWidth") == 390, state
        assert violations(page) == [], state


def test_page_can_be_printed(page):
    tag(page)
    page.emulate_media(media="print")
    assert page.locator("#printed").inner_text() == GARDEN_TEXT
    assert page.locator("button:visible").count() == page.locator("button.tag:visible").count() == len(TOPICS)
    page.emulate_media(media="screen")
    explain(page, GARDEN)
    page.emulate_media(media="print")
    assert not page.locator("#printed").is_visible()
    assert page.locator("#marked").is_visible()
