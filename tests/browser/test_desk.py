"""Review desk of the server in Chromium, with a real model: keyboard, phone, two users, administration."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from library import ATTACK, TOPICS, labelled, uri
from serving import running

from xmtc.review.store import ADMINISTRATOR, Decision, ReviewStore

expect = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser").expect
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
MODEL = "library"


@pytest.fixture
def desk(library, tmp_path):
    """Yield the address of a desk with texts, the tokens of its people, and its store."""
    with closing(ReviewStore(tmp_path / "desk.sqlite")) as store:
        tokens = {"ann": store.add_person("ann"), "ben": store.add_person("ben")}
        tokens["eva"] = store.add_person("eva", ADMINISTRATOR)
        texts = [(f"book {number}", record["text"]) for number, record in enumerate(labelled(12, seed=9))]
        store.add_documents(MODEL, [*texts[:11], ("attack", f"{ATTACK} script malware phishing exploit")])
        with running(shutil.copytree(library / "library", tmp_path / MODEL), "--desk", store.path) as service:
            yield f"{service.url}/", tokens, store


@pytest.fixture
def enter(visit, desk):
    """Open the desk as a person."""

    def open_desk(name, **settings):
        address, tokens, _ = desk
        page = visit(address, ready=False, **settings)
        page.goto(f"{address}desk")
        page.fill("#token-value", tokens[name])
        page.keyboard.press("Enter")
        page.wait_for_selector("body.ready")
        page.wait_for_selector("#answer[aria-busy=false]")
        return page

    return open_desk


def choose_order(page, order="document"):
    page.locator("#settings details").evaluate("details => details.open = true")
    with page.expect_response("**/next?*"):
        page.select_option("#order", order)
    page.wait_for_selector("#answer[aria-busy=false]")


def title(page):
    return page.locator("#text-title").inner_text()


def press(page, key):
    """Press a key and wait for the next document."""
    before = title(page)
    page.keyboard.press(key)
    expect(page.locator("#text-title")).not_to_have_text(before)
    page.wait_for_selector("#answer[aria-busy=false]")


def test_documents_are_reviewed_with_the_keyboard(enter, desk):
    page, store = enter("ann"), desk[2]
    choose_order(page)
    first = title(page)
    page.fill("#threshold", "0")
    page.keyboard.press("Enter")
    expect(page.locator("#tags > li")).to_have_count(len(TOPICS))
    page.locator("#tags").focus()
    page.keyboard.press("a")
    expect(page.locator("#tags .thumb.right[aria-pressed=true]")).to_have_count(len(TOPICS))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("-")
    page.keyboard.press("/")
    page.keyboard.type("merenk")
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("Enter")
    page.keyboard.type("a new subject")
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("Enter")
    assert page.locator("#tags li", has_text="proposed").count() == 1
    page.keyboard.press("Escape")
    press(page, "s")
    (stored,) = store.list_decisions(MODEL)
    assert stored.person == "ann"
    assert len(stored.decision.accepted) == len(TOPICS) - 1
    assert len(stored.decision.rejected) == 1
    assert stored.decision.proposed == ["a new subject"]
    assert stored.decision.seconds > 0
    assert len(stored.decision.shown) == len(TOPICS)

    press(page, "p")
    assert title(page) == first
    expect(page.locator("#tags .thumb.wrong[aria-pressed=true]")).to_have_count(1)
    press(page, "n")
    assert title(page) != first


def test_shortcuts_can_be_turned_off(enter):
    page = enter("ann")
    page.locator("#settings details").evaluate("details => details.open = true")
    page.uncheck("#shortcuts")
    page.locator("#text").focus()
    page.keyboard.press("a")
    expect(page.locator("#tags .thumb[aria-pressed=true]")).to_have_count(0)


def test_two_people_review_at_once(enter, desk):
    ann, ben, store = enter("ann"), enter("ben"), desk[2]
    assert title(ann) != title(ben)
    for _ in range(3):
        for page in (ann, ben):
            page.keyboard.press("a")
            press(page, "s")
    decisions = store.list_decisions(MODEL)
    assert sorted(stored.person for stored in decisions) == ["ann"] * 3 + ["ben"] * 3
    assert len({stored.document for stored in decisions}) == 6
    assert not ann.locator("#administration").is_visible()


def test_failed_save_is_retried_once(enter, desk):
    page, store = enter("ann"), desk[2]
    page.keyboard.press("a")
    page.route("**/decision", lambda route: (route.fetch(), route.abort()))  # stored, but the answer is lost
    page.keyboard.press("s")
    page.get_by_text("The server cannot be reached.").wait_for()
    page.unroute("**/decision")
    with page.expect_response("**/decision"):
        page.click("#retry")
    page.wait_for_selector("#answer[aria-busy=false]")
    assert store.count_decisions() == 1


def test_subjects_are_copied_and_linked(enter):
    page = enter("ann")
    choose_order(page)
    page.locator("#tags .thumb.right").first.click()
    link = page.locator("#tags .name a").first
    assert link.get_attribute("href").startswith("http://example.org/")
    assert link.get_attribute("rel") == "noopener noreferrer"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("c")
    expect(page.locator("#status")).to_have_text("1 subjects copied.")
    assert page.evaluate("navigator.clipboard.readText()").endswith(link.get_attribute("href"))


def test_filter_limits_suggestions_and_search(enter):
    page = enter("ann")
    page.locator("#settings details").evaluate("details => details.open = true")
    page.fill("#threshold", "0")
    page.fill("#filter", uri("law"))
    with page.expect_response(lambda response: "allow=" in response.url):
        page.keyboard.press("Enter")
    expect(page.locator("#tags .name")).to_have_count(1)
    page.fill("#search", "c")
    page.wait_for_selector("#found [aria-selected=true]")
    expect(page.locator("#found li")).to_have_count(2)  # the label and the proposal


@pytest.mark.parametrize(
    ("locale", "words"),
    [("fi-FI", "Tallenna ja seuraava"), ("sv-SE", "Spara och nästa"), ("de-DE", "Speichern und weiter")],
)
def test_page_is_translated(enter, locale, words):
    page = enter("ann", locale=locale)
    assert page.get_by_role("button", name=words).is_visible()
    assert page.locator("html").get_attribute("lang") == locale[:2]
    page.select_option("#page-language", "en")
    assert page.get_by_role("button", name="Save and next").is_visible()


def test_every_text_is_translated():
    folder = Path(__file__).parents[2] / "xmtc/server/page"
    texts = json.loads((folder / "translations.json").read_text())
    assert all(set(each) == {"en", "fi", "sv", "de"} and all(each.values()) for each in texts.values())
    source = "".join((folder / name).read_text() for name in ("desk.html", "desk.js", "administration.js"))
    assert [key for key in texts if key not in source and not key.startswith(("order-", "state-", "is-"))] == []


def test_names_and_texts_are_not_executed(enter, desk):
    page = enter("eva")
    choose_order(page)
    for _ in range(13):
        if ATTACK not in page.locator("#text").inner_text():
            press(page, "n")
    assert ATTACK in page.locator("#text").inner_text()
    page.keyboard.press("a")
    page.fill("#search", ATTACK)
    page.wait_for_selector("#found [aria-selected=true]")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    press(page, "s")
    assert page.locator("main img").count() == 0
    assert page.title() == "xmtc: Review desk"


def test_administrator_sees_conflicts_and_updates_the_model(enter, desk):
    _, tokens, store = desk
    (first, *_) = [document.number for document in store.list_documents(MODEL)]
    for name, label in (("ann", "garden"), ("ben", "space")):
        store.record(MODEL, first, store.find_person(tokens[name]), "k", Decision(accepted=[uri(label)]))
    for number, record in enumerate(labelled(120, seed=11)):
        person = store.find_person(tokens["ann"])
        learnt = (person, f"new {number}", record["text"], f"n{number}", Decision(added=record["labels"]))
        store.learn(MODEL, [learnt])
    page = enter("eva")
    expect(page.locator("#agreement")).to_have_text("ann – ben: consistency 0.00 on 1 documents")
    expect(page.locator("#conflicts li")).to_contain_text("gardening: yes ann, no ben")
    page.get_by_role("button", name=f"Open document {first}").click()
    expect(page.locator("#reviewed")).to_contain_text("ann: gardening")
    page.click("#update")
    page.get_by_role("button", name="Serve this model").wait_for(timeout=120_000)
    expect(page.locator("#updates")).to_contain_text("nDCG@5")
    page.get_by_role("button", name="Serve this model").click()
    page.get_by_role("button", name="Roll back").wait_for()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("button", name="Serve this model").wait_for()
    with page.expect_download() as waiting:
        page.click("#export")
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len(lines) == 120  # the disputed document has no majority


def test_desk_fits_a_phone_and_is_accessible(enter, violations):
    for settings in (PHONE, {"color_scheme": "dark"}, {}):
        page = enter("eva", **settings)
        page.wait_for_selector("#conflicts li")
        page.click("#accept-all")
        page.fill("#search", "a")
        page.wait_for_selector("#found [aria-selected=true]")
        if settings is PHONE:
            assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert violations(page) == [], settings
        if "DESK_PICTURES" in os.environ:
            page.keyboard.press("Escape")
            name = "phone" if settings is PHONE else settings.get("color_scheme", "wide")
            page.screenshot(path=f"{os.environ['DESK_PICTURES']}/{name}.png", full_page=True)
