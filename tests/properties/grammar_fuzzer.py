"""Throw texts at the grammar with bounded memory; print the first offence and fail. Run by test_grammar_fuzz."""

from __future__ import annotations

import random
import resource
import signal
import sys
import time

import lodekit as lk

PIECES = [
    *"xyzuabt0123456789+-*/^=();,.'#\n \"\\[]{}<>!@$%&|~`?:_",
    *[
        "x'",
        "y''",
        "D(",
        "diff(",
        "exp(",
        "sin(",
        "cos(",
        "sqrt(",
        "delay(",
        "pi",
        "**",
        "==",
        "1e",
        "1e9",
        "^(4)",
        "(t)",
        "2/3",
        "9.81",
    ],
    *[
        "x1",
        "λ",
        "θ_1",
        "x₁",
        "I",
        "E",
        "lambda",
        "\x00",
        "\u202e",
        "é",
        "e\u0301",
        "½",
        "٣",
        "𝔁",
        "\U0001f600",
        "ﬀ",
        "ẍ",
    ],
    *[
        "((((((((((",
        "))))",
        "^^",
        "'''''''",
        "99999999999999999999",
        "^99",
        "^(1/2)",
        "/0",
        "*t",
        "exp(t)",
        "sin(a*t+1)",
    ],
]
SEEDS = [
    "f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)",
    "x'' + l1*f1'' + 9.81*f1 = 0; x'' + l2*f2'' + 9.81*f2 = 0",
    "(a+b)^8*x' = (a-b)^7*D(y, 3) + sin(2*t + pi/4)*exp(-t)*t^3",
    "x^(4) + sqrt(2)*diff(x, t, t) = exp(1)*u/(a + b) # comment",
]
SECONDS_EACH = 60
BYTES = 3 << 30


def make_text(generator: random.Random) -> str:
    if generator.random() < 0.5:
        return "".join(generator.choice(PIECES) for _ in range(generator.randint(0, 40)))
    text = list(generator.choice(SEEDS))
    for _ in range(generator.randint(1, 6)):
        position = generator.randrange(len(text) + 1)
        match generator.randrange(4):
            case 0:
                text[position:position] = generator.choice(PIECES)
            case 1:
                del text[position : position + generator.randint(1, 5)]
            case 2:
                text[position:position] = text[generator.randrange(len(text) + 1) :][: generator.randint(1, 15)]
            case 3 if position < len(text):
                text[position] = generator.choice(PIECES)
    return "".join(text)


def main(seed: int, count: int, seconds: float) -> None:
    """Try `count` texts, or as many as the budget of seconds allows."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    generator = random.Random(seed)
    accepted, tried, end = 0, 0, time.monotonic() + seconds
    while tried < count and time.monotonic() < end:
        text = make_text(generator)
        parameters = generator.choice([(), ("a",), ("a", "b")])
        signal.alarm(SECONDS_EACH)
        try:
            system = lk.System(text, parameters=parameters)
            system.explain()
            accepted += 1
        except lk.LodekitError as problem:
            if not str(problem):
                sys.exit(f"empty message for {text!r}")
        except BaseException as problem:
            sys.exit(f"{type(problem).__name__}: {problem} for {text!r} with parameters {parameters}")
        finally:
            signal.alarm(0)
        tried += 1
    sys.stdout.write(f"{tried} tried, {accepted} accepted\n")


def hang(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS_EACH} s")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, hang)
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
