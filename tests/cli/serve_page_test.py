#!/usr/bin/env python3
"""The live page in a real browser: what it asks, shows and says, by mouse and by keyboard alone."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import CHROMIUM, Browser
from serve_test import ServeCase

SMALL = "?workload=gpt2&cluster=dgx-a100&gpus=8&global_batch=64&seq_len=512"
DONE = "['progress', 'progress wrong'].includes(document.getElementById('progress').className.trim())"


@unittest.skipIf(CHROMIUM is None, "there is no browser (Debian: chromium)")
class ServePage(ServeCase):
    def browser(self, **options):
        browser = Browser(self.folder / f"browser-{len(options)}", **options)
        self.addCleanup(browser.close)
        return browser

    def at(self, browser, target):
        browser.go(self.url.rstrip("/") + target)
        browser.wait_for("document.querySelectorAll('#answer section').length > 0")
        browser.wait_for(DONE)
        self.assertNotIn("wrong", browser.ask("document.getElementById('progress').className"), browser.ask("document.getElementById('status').textContent"))

    def check_quiet(self, browser):
        self.assertEqual(browser.complaints, [])
        self.assertEqual([url for url in browser.requests if not url.startswith(self.url)], [])

    def test_every_part_is_there_and_nothing_is_asked_of_anybody_else(self):
        browser = self.browser()
        self.at(browser, SMALL)
        titles = browser.ask("[...document.querySelectorAll('#answer h2')].map((title) => title.textContent)")
        for part in ("The answer", "A whole run", "Why", "A step over time", "Memory over a step", "What this rests on"):
            self.assertIn(part, titles)
        for i in range(browser.ask("document.querySelectorAll('.chart').length")):
            browser.ask(f"document.querySelectorAll('.chart')[{i}].scrollIntoView()")
            browser.wait_for(f"document.querySelectorAll('.chart')[{i}].querySelector('canvas') !== null")
        self.assertIn("DP", browser.ask("document.getElementById('answer').textContent"))
        # What any page may not do.
        self.assertEqual(browser.ask("fetch('http://127.0.0.1:9/').then(() => 'left', () => 'stayed')"), "stayed")
        self.assertEqual([text for text in browser.complaints if "Content Security Policy" not in text], [])
        browser.complaints.clear()
        browser.requests[:] = [url for url in browser.requests if ":9/" not in url]
        self.check_quiet(browser)

    def test_controls_move_the_answer_and_the_address_is_the_question(self):
        browser = self.browser()
        self.at(browser, SMALL)
        first = browser.ask("document.querySelector('#answer .tile .big').textContent")
        browser.ask("""(() => { const input = [...document.querySelectorAll('#controls input')].find((one) => one.labels[0].textContent === 'Global batch');
            input.focus(); })()""")
        for _ in range(3):  # each gives up the one before
            browser.press("ArrowRight")
        browser.wait_for("window.location.search.includes('global_batch=512')")
        browser.wait_for(f"document.querySelector('#answer .tile .big').textContent !== {first!r}")
        browser.wait_for(DONE)
        address, told = browser.ask("window.location.search"), browser.ask("document.querySelector('#answer').textContent")
        self.at(browser, address)
        self.assertEqual(browser.ask("document.querySelector('#answer').textContent"), told)
        # What cannot be is said, and the last answer stays, faded.
        browser.go(self.url.rstrip("/") + SMALL + "&tp=3")
        browser.wait_for("document.getElementById('progress').className === 'progress wrong'")
        self.assertIn("tp", browser.ask("document.getElementById('status').textContent"))
        self.check_quiet(browser)

    def test_the_keyboard_alone_reaches_everything_and_charts_say_what_they_show(self):
        browser = self.browser()
        self.at(browser, SMALL)
        wanted = browser.ask("""[...document.querySelectorAll('button, select, input, a[href], summary, [tabindex="0"]')].filter((one) => one.tabIndex >= 0
            && one.checkVisibility() && !(one.closest('details:not([open])') && one.tagName !== 'SUMMARY')).length""")
        reached = set()
        for _ in range(wanted + 5):
            browser.press("Tab")
            reached.add(browser.ask("(() => { const on = document.activeElement; on.dataset.seen ||= String(Math.random()); return on === document.body ? null : on.dataset.seen; })()"))
        reached.discard(None)
        self.assertEqual(len(reached), wanted)
        browser.ask("[...document.querySelectorAll('.chart')].find((one) => one.getAttribute('role') === 'application').focus()")
        browser.wait_for("Boolean(allCharts.find((one) => one.box === document.activeElement).instance)")
        browser.press("ArrowRight")
        self.assertRegex(browser.wait_for("document.getElementById('said').textContent"), r"rank 0.*(compute|input|recomputation)")
        browser.press("+")
        zoom = browser.ask("(() => { const now = allCharts.find((one) => one.box === document.activeElement).instance.getOption().dataZoom[0]; return now.end - now.start; })()")
        self.assertAlmostEqual(zoom, 50, delta=0.1)
        self.check_quiet(browser)

    def test_hovering_tells(self):
        browser = self.browser()
        self.at(browser, SMALL)
        place = browser.ask("""(() => { const box = [...document.querySelectorAll('.chart')].find((one) => one.getAttribute('role') === 'application');
            box.scrollIntoView({ block: 'center' }); const made = allCharts.find((one) => one.box === box); made.draw(); const at = box.getBoundingClientRect();
            return [at.x, at.width, at.y + made.instance.convertToPixel({ yAxisIndex: 0 }, 0)]; })()""")
        told = None
        for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
            browser.hover(place[0] + place[1] * share - 3, place[2] - 2)
            browser.hover(place[0] + place[1] * share, place[2])
            browser.listen(0.3)
            told = told or browser.ask("[...document.querySelectorAll('.chart > div')].map((one) => one.textContent).find((text) => text.includes('rank')) || null")
        self.assertRegex(told or "", "rank 0.* from .* on")
        self.check_quiet(browser)

    def test_lessons_are_told_on_a_phone_in_the_dark_and_follow_their_sliders(self):
        browser = self.browser(width=390, height=800, dark=True, mobile=True)
        browser.go(self.url + "#learn")
        browser.wait_for("document.querySelectorAll('.lesson').length === 6")
        self.assertEqual(browser.ask("document.documentElement.dataset.theme"), "dark")
        for i in range(6):
            browser.ask(f"document.querySelectorAll('.lesson')[{i}].scrollIntoView()")
            browser.wait_for(f"document.querySelectorAll('.lesson')[{i}].dataset.state === 'told'")
            browser.wait_for(f"document.querySelectorAll('.lesson')[{i}].querySelector('canvas, table') !== null")
        self.assertLessEqual(browser.ask("document.documentElement.scrollWidth"), 390)
        # A ring of four ranks: after its last step everybody has every sum.
        slide = """(name, at) => { const input = [...document.querySelectorAll('#lesson-%s input')].find((one) => one.labels[0].textContent === name);
            input.value = at; input.dispatchEvent(new Event('input', { bubbles: true })); }"""
        self.assertEqual(browser.ask("document.querySelectorAll('#lesson-ring td.full').length"), 0)
        browser.ask(f"({slide % 'ring'})('Step', 3)")
        self.assertEqual(browser.ask("document.querySelectorAll('#lesson-ring td.full').length"), 4)
        browser.ask(f"({slide % 'ring'})('Step', 6)")
        self.assertEqual(browser.ask("document.querySelectorAll('#lesson-ring td.full').length"), 16)
        said = browser.ask("document.querySelector('#lesson-bubbles .told').textContent")
        browser.ask(f"({slide % 'bubbles'})('Micro-batches m', 3)")
        browser.wait_for(f"document.querySelector('#lesson-bubbles').dataset.state === 'told' && document.querySelector('#lesson-bubbles .told').textContent !== {said!r}")
        self.assertIn("the formula says 9.4%", browser.ask("document.querySelector('#lesson-bubbles .told').textContent"))
        self.check_quiet(browser)


if __name__ == "__main__":
    unittest.main(verbosity=2)
