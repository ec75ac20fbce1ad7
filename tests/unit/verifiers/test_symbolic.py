"""Equality by symbolic mathematics: exact, without floats."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dapo.verifiers.symbolic import is_equal


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt3}"),
        ("\\sqrt{5+2\\sqrt6}", "\\sqrt2+\\sqrt3"),
        ("\\frac18", "\\cos\\frac{\\pi}{9}\\cos\\frac{2\\pi}{9}\\cos\\frac{4\\pi}{9}"),
        ("3", "\\log_2 8"),
        ("-1", "e^{i\\pi}"),
        ("x^2-1", "(x-1)(x+1)"),
        ("\\tan x", "\\frac{\\sin x}{\\cos x}"),
        ("2\\ln x", "\\ln(x^2)"),
        ("2x+4y-3=0", "y=-\\frac{1}{2}x+\\frac{3}{4}"),
        ("xy=1", "y=\\frac1x"),
        ("x < 1", "-x > -1"),
        ("(-\\infty,2)\\cup(2,\\infty)", "\\mathbb{R}\\setminus\\{2\\}"),
        ("1 \\pm \\sqrt{19}", "1-\\sqrt{19}, 1+\\sqrt{19}"),
        ("90^\\circ", "\\frac{\\pi}{2}"),
        ("55", "\\sum_{k=1}^{10} k = 55"),
        ("55", "\\sum_{k=1}^{10} k"),
        ("\\frac13", "\\int_0^1 x^2 dx"),
    ],
)
def test_equal_values_in_other_forms(gold: str, answer: str) -> None:
    assert is_equal(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("\\pi", "3.14159265358979323846264338327950288419716939937510582097494459"),
        ("e^{\\pi\\sqrt{163}}", "262537412640768744"),
        ("34", "34+\\sqrt2\\cdot 10^{-500}"),
        ("1", "\\sqrt{1+10^{-300}}"),
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
        ("x", "\\sqrt{x^2}"),
        ("x < 1", "-x < -1"),
        ("3x-y+13=0", "3x+4y+14=0"),
        ("x=3", "x^2=9"),
        ("5", "x"),
        ("9", "9^{9^{9^9}}"),
        ("2", "2^1000000000"),
        ("7", "(10^{9})!"),
        ("7", "x^{99999999}"),
        ("1", "\\sum_{k=1}^{10^{12}} k"),
        ("a+b", "(a+b+c+d+f+g+h+k)^{14}"),
        ("3", "1/0"),
        ("5", "\\text{five apples}"),
    ],
)
def test_near_misses_and_towers_are_different(gold: str, answer: str) -> None:
    assert not is_equal(gold, answer)


def test_nothing_in_an_answer_is_run() -> None:
    assert not is_equal("1", "__import__('os').system('exit 3')")
    assert not is_equal("1", "\\sum_{k=1}^{2} exec(1)")


def test_the_package_loads_neither_torch_nor_sympy() -> None:
    code = (
        "import sys, dapo.verifiers; sys.exit(any(name in sys.modules for name in ('torch', 'sympy', 'math_verify')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
