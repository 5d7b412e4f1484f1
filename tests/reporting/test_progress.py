"""What the reporters say while a run goes on."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from fastrl_cli.errors import UsageError
from fastrl_cli.reporting.progress import Pace, PlainReporter, QuietReporter, Reporter, make_reporter
from fastrl_cli.reporting.rich_progress import RichReporter
from fastrl_cli.reporting.wording import clock, step_text

STEP = {
    "step": 3,
    "reward/mean": 0.91,
    "reward/accuracy": 0.45,
    "kept_fraction": 0.39,
    "rollouts_per_question": 8,
    "tokens_per_second": 1234.5,
    "step_seconds": 2.0,
    "phase_seconds/generate": 1.25,
    "phase_seconds/update": 0.5,
    "phase_seconds/old": 0.0,
}
EVALUATION = {
    "step": 0, "eval/accuracy": 0.41, "eval/accuracy_low": 0.38, "eval/accuracy_high": 0.44, "eval/questions": 1024
}  # fmt: skip


def tell(reporter: Reporter) -> None:
    reporter.line("engine transformers: vLLM is [bold]not[/bold] installed")
    reporter.warn("no spread")
    reporter.example(question="How long?", response="\\boxed{3}", gold="4", correct=False)
    reporter.evaluation(EVALUATION)
    reporter.begin(10, first_step=2)
    with reporter.phase("generate"):
        reporter.step(STEP)
    reporter.close()
    reporter.close()


def test_plain_lines_have_the_numbers_a_person_follows() -> None:
    stream = io.StringIO()
    tell(PlainReporter(stream))
    text = stream.getvalue()
    assert "vLLM is [bold]not[/bold] installed" in text and "warning: no spread" in text
    assert "How long?" in text and "\\boxed{3}" in text and "wrong" in text
    assert "accuracy 41.0 % [38.0, 44.0], 1,024 problems" in text
    (line,) = [line for line in text.splitlines() if line.startswith("step ")]
    for part in ("step 3/10", "reward 0.910", "accuracy 0.450", "kept 39.0%", "n 8", "tokens/s 1,234", "ETA 14 s"):
        assert part in line
    assert "generate 1.25 s, update 0.50 s" in line and "old" not in line


def test_a_live_display_shows_the_same_and_gives_the_terminal_back() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, highlight=False)
    reporter = RichReporter(console)
    tell(reporter)
    text = stream.getvalue()
    assert "vLLM is [bold]not[/bold] installed" in text and "How long?" in text and "accuracy 41.0 %" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_a_live_display_draws_the_step_and_the_phase() -> None:
    reporter = RichReporter(Console(file=io.StringIO(), force_terminal=True, width=100))
    reporter.begin(10, first_step=2)
    reporter.step(STEP)
    drawn = Console(file=io.StringIO(), width=100, record=True)
    with reporter.phase("generate"), reporter.phase("waiting"):
        drawn.print(reporter._render())
    drawn.print(reporter._render())
    reporter.close()
    text = drawn.export_text()
    for part in ("step 3/10", "ETA 14 s", "reward 0.910", "kept 39.0%", "n 8", "generate 1.25 s", "▸ waiting 0 s"):
        assert part in text
    assert text.count("▸") == 1


def test_quiet_says_warnings_alone(capsys: pytest.CaptureFixture[str]) -> None:
    tell(QuietReporter())
    captured = capsys.readouterr()
    assert captured.err == "warning: no spread\n" and captured.out == ""


def test_a_long_phase_gives_signs_of_life() -> None:
    beaten = threading.Event()

    class Listening(io.StringIO):
        def write(self, text: str) -> int:
            if "generate" in text:
                beaten.set()
            return super().write(text)

    stream = Listening()
    reporter = PlainReporter(stream, heartbeat_seconds=0.01)
    with reporter.phase("generate"):
        assert beaten.wait(timeout=30)
    reporter.close()
    assert "still at it: generate" in stream.getvalue()


def test_without_a_phase_there_is_no_sign_of_life() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream, heartbeat_seconds=0.001)
    with reporter.phase("generate"):
        pass
    threading.Event().wait(0.05)
    reporter.close()
    assert stream.getvalue().count("still") <= 1


def test_the_reporter_fits_where_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for mode, kind in (("auto", PlainReporter), ("plain", PlainReporter), ("none", QuietReporter)):
        reporter = make_reporter(mode)
        assert isinstance(reporter, kind)
        reporter.close()
    monkeypatch.setenv("RANK", "1")
    assert isinstance(make_reporter("plain"), QuietReporter)
    with pytest.raises(UsageError, match="must be one of auto, rich, plain, none"):
        make_reporter("loud")


def test_time_left_follows_the_latest_steps() -> None:
    pace = Pace(total_steps=10, window=2)
    assert pace.observe({"step": 1}) is None
    assert pace.observe({"step": 2, "step_seconds": 100.0}) == 800
    assert pace.observe({"step": 3, "step_seconds": 1.0}) == 7 * 50.5
    assert pace.observe({"step": 4, "step_seconds": 1.0}) == 6
    assert pace.observe({"step": 10, "step_seconds": 1.0}) == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (185, "3:05"), (7385, "2:03:05")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_what_was_not_measured_is_left_out() -> None:
    assert step_text({"step": 1}, 5, None) == "step 1/5"
