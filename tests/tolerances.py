"""How far apart two right answers may be. Every limit on rounding in the tests comes from here.

float32 keeps 24 bits, so an operation is off by up to U = 6e-8 of its result, and which way depends on the order of
additions: on the batch, the number of threads, the processor, the libraries. The same code on another machine gives
other last bits, so a limit has to follow from what lies between two answers, not from what one machine showed.

Attention weights are shares: none is above 1 and a row sums to 1, so the limits on them are absolute.

SUMMED     Two sums of the same weights in another order. A blocked sum of n shares is off by about log2(n) U; 16 U is
           enough for 65,536.
ONE_LAYER  Two softmaxes of the same queries and keys. A score of size s is off by about s U, and its weight by as much
           of itself; in the tests' models and texts s stays below 30. Larger scores: `softmaxes`.
SHALLOW    Two forwards of a model of up to 4 layers: every layer hands on what the one before was off by.
DEEP       Two forwards of a model of up to 30 layers. Errors partly cancel; against float64, the evidence of runs of
           the built-in models reports up to 3e-6 for one of the two, and these are the worst of few prompts.
EXACT      The same float64 arithmetic written in two ways: 1e-16 per operation.

Entropy in nats weighs an error by the logarithm of a weight, which is at most about NATS. Logits are not shares: their
limit is relative to the largest. HALF is that limit for a model with an adapter that was rounded to float16 on the way:
11 bits, so each of its two factors is off by 2^-11 = 5e-4 of itself, in every layer.
"""

from __future__ import annotations

U = 2.0**-24

SUMMED = 16 * U
ONE_LAYER = 2e-6
SHALLOW = 5e-6
DEEP = 2e-5
EXACT = 1e-9
NATS = 20.0
LOGITS = 1e-5
HALF = 4e-3


def softmaxes(largest_score: float) -> float:
    """ONE_LAYER for scores of any size; a product of two vectors is off by a few U, on either side."""
    return ONE_LAYER + 4 * U * largest_score
