"""How far rounding may take what a model computes, whichever kernels a processor has."""

from __future__ import annotations

ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""The largest relative error of one rounding.

A result that is rounded n times one after another, in whichever order a processor adds, has n times
as much at most. Our tiny models of two or three layers round a number of a unit vector, or a whole
one in length, four to ten times; errors of products within a sum are both above and below zero.
"""

SUMS = 100 * ROUNDOFF["fp32"]
"""What a model in float32 may be off, as a share of its largest number, from a calculation in
float64.

Each number went through two to twelve layers, in each of which a product adds 16 to 128 terms, and
a norm as many.
"""

FP32_NOISE = 32 * ROUNDOFF["fp32"]
"""What two runs in float32 may differ by: a difference that is larger comes from fewer digits."""

PROBABILITIES = {"fp32": 2e-3, "fp16": 2e-2, "bf16": 2e-2}
"""The bounds of a learned segmenter's probabilities that the product has.

A probability has up to a quarter of the error of its logit, and a logit is the mean of windows,
summed in fp16.
"""
