"""What the demo asks: prompts from 3 tokens to over 1000, in waves; those of a wave go out together."""

_QUESTION = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_LINE = "On day {0} the ferry carried {1} passengers and {2} bicycles across the bay, and the captain wrote it down.\n"


def _logbook(days: int) -> str:
    """About 28 tokens a day."""
    return "".join(_LINE.format(day, 37 * day % 211, 13 * day % 29) for day in range(1, days + 1))


WAVES = [
    ["Let me tell you a lonnng story "],
    [_logbook(4), "The capital of France"],
    [
        _QUESTION.format("Name three rivers of Europe."),
        _logbook(12),
        "def fibonacci(n):\n",
        _logbook(40),
        _QUESTION.format("Summarise this log in one sentence.\n" + _logbook(20)),
        "1, 2, 4, 8, 16, 32, ",
        "Once upon a time there was a lighthouse keeper who had not spoken to anybody for a year, until one morning",
    ],
]


def waves(most: int | None = None) -> list[list[str]]:
    """The first `most` prompts; all of them if None."""
    left = sum(map(len, WAVES)) if most is None else most
    chosen = []
    for wave in WAVES:
        chosen.append(wave[:left])
        left -= len(chosen[-1])
    return [wave for wave in chosen if wave]
