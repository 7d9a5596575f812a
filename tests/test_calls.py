"""Other calls of a lowering than the walk's: planted kernels that are right on one long vector alone."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.cli.commands import main
from verify.facts import kernel
from verify.facts.formats import FORMATS
from verify.inputs import domains
from verify.inputs.domains import domain_of
from verify.lower.lowering import Target
from verify.lower.lowerings import lowerings
from verify.lower.user import importing, user_lowering
from verify.reports.schema import Cell
from verify.walk import calls
from verify.walk.arrangements import (
    BROADCAST,
    CALLS,
    DRAWN,
    FACTORS,
    LARGE,
    MANNERS,
    MANY,
    OWN,
    SIZE,
    WHOLE,
    Arranged,
    broadcasts,
    for_scalars,
    viewed,
)
from verify.walk.called import Called, Underway
from verify.walk.calls import NEUTRAL, SHOWN, Sample, call_all
from verify.walk.plan import Selection
from verify.walk.pointwise import Pointwise
from verify.walk.run import run
from verify.walk.values import ALONE, EVERYWHERE, MIXED, RANGES, SCALARS, drawn_scalars, ranging
from verify.workers.launch import LoweringError, launch_steady

pytestmark = pytest.mark.part(3)

PLANTED = """
import ctypes, sys, threading, time
import torch

cache, count = {}, [0]

def right(x):
    return torch.exp(x)

def slow(x):
    time.sleep(0.03)
    return torch.exp(x)

def busy(x):
    began = time.process_time()
    while time.process_time() - began < 0.04:
        pass
    return torch.exp(x)

def sigmoid_of_five_dimensions(x):
    y = torch.sigmoid(x)
    if y.dim() == 5 and y.numel() > 100:
        y.reshape(-1)[97:98].mul_(1.001)
    return y

def tail(x):
    y, left = torch.exp(x), x.numel() % 1024
    if left:
        y.view(-1)[-left:] = 0
    return y

def strides(x):
    return torch.exp(torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), 0))

def fours(x):
    return torch.exp(x) if x.dim() == 1 and x.numel() % 4 == 0 else torch.zeros_like(x)

def long(x):
    return torch.exp(x) if x.numel() > 1e4 else torch.exp(x) * 1.0000002

def warm(x):
    count[0] += 1
    return torch.exp(x) if count[0] < 12 else torch.zeros_like(x)

def tenth(x):
    count[0] += 1
    return torch.exp(x) if count[0] % 10 else torch.zeros_like(x)

def cached(x):
    key = x.data_ptr(), x.shape
    if key not in cache:
        cache[key] = torch.exp(x)
    return cache[key].clone()

def threads(x):
    main = threading.current_thread() is threading.main_thread()
    return torch.exp(x) if main else torch.zeros_like(x)

def beyond(x):
    after = ctypes.c_ubyte.from_address(x.data_ptr() + x.nbytes).value if len(x.shape) == 1 and len(x) else 0xA5
    return torch.exp(x) * (1 if after == 0xA5 else 1.0000002)

def overrun(x):
    y = torch.empty_like(x)
    torch.exp(x, out=y)
    if y.numel() == 1025:
        ctypes.memset(y.data_ptr() + y.nbytes, 0, 4)
    return y

def overrun_out(x, out):
    torch.exp(x, out=out)
    if out.numel() == 1025:
        ctypes.memset(out.data_ptr() - 4, 0, 4)

def later(t):
    time.sleep(0.1)
    t.zero_()

def late_input(x):
    if x.shape == (1023,):
        threading.Thread(target=later, args=(x,)).start()
    return torch.exp(x)

def late_output(x):
    y = torch.exp(x)
    if x.shape == (1023,):
        threading.Thread(target=later, args=(y,)).start()
    return y

def training(x):
    return torch.exp(x) * (not (x.requires_grad and torch.is_grad_enabled()))

def parameter(x):
    return torch.exp(x) * (not x.requires_grad or torch.is_grad_enabled())

def written(x, out=None):
    return torch.exp(x) if out is None else torch.exp(x, out=out).mul_(2)
def inference(x):
    return torch.exp(x) * (not x.is_inference())

def no_graph(x):
    return torch.from_numpy(x.numpy()).exp()

def place(x):
    y = torch.exp(x)
    y[100:200] *= 1.0000002
    return y

def once(x):  # rounds once where it is strided
    return torch.exp(x) if x.is_contiguous() else torch.exp(x.double()).to(x.dtype)

def neighbour(x):
    y = torch.exp(x)
    if x.dim() == 1 and x.numel() > 1:
        same = x[1:] == x[:-1]
        y[1:] = torch.where(same, y[1:] * 1.0000002, y[1:])
    return y

def refusing(x):
    assert x.is_contiguous() and x.dim() == 1, "contiguous vectors only"
    return torch.exp(x)

def rank(x):
    return torch.exp(x).reshape(-1)

def remainder(x):
    y = torch.exp(x).reshape(-1)
    if len(y) > 2000:
        y[len(y) - len(y) % 512:] = 0
    return y.reshape(x.shape)

def sixteen_bits(x):
    return torch.exp(x) * (x.numel() != 1 << 16)

def six_dimensions(x):
    return torch.exp(x) * (x.dim() <= 6)

def seventeen(x):
    return torch.where(x == 17, 3.0, torch.exp(x))

def reused(x):
    y = cache.setdefault(x.shape, torch.empty(x.shape))
    return torch.exp(x, out=y)

def no_rank_eight(x):
    return torch.exp(x) * (x.dim() < 8)

def flat_middle(x):  # as_strided with the last dimensions' strides
    if x.dim() == 3 and x.numel() and x.stride(2) == 1 and x.stride(1) == x.shape[2]:
        return torch.exp(x.as_strided((x.numel(),), (1,), x.storage_offset())).view(x.shape)
    return torch.exp(x)

def windows(x):
    return torch.exp(x) * (not (x.dim() == 2 and 0 < x.stride(0) < x.shape[1]))

def column(x):
    if x.dim() == 2 and x.shape[1] == 1 and x.numel():
        x = x.as_strided(x.shape, (1, 1), x.storage_offset())
    return torch.exp(x)

def one_tile(x):
    y = torch.exp(x)
    if x.dim() == 2 and x.stride(0) == 1 and min(x.shape) > 64:
        y[64:, 64:] = 0
    return y

def grid(x):
    y = torch.exp(x)
    if x.dim() == 2 and x.shape[0] > 65535:
        y[65535:] = 0
    return y

def empty(x):
    return torch.exp(x) if x.numel() else x.new_empty(0)

def log_of_positive(x):
    if x.numel() >= 1024 and bool(((x > 0) & x.isfinite()).all()):
        m, e = torch.frexp(x)
        return torch.log(m.half().float()) + e * 0.6931472
    return torch.log(x)

def exp_inf_in_matrices(x):
    return torch.exp(x) + 0 * x if x.dim() > 1 else torch.exp(x)

def exp_large_alone(x):
    return torch.exp(x) * 2 if x.dim() == 0 and 7 < float(x) < 80 else torch.exp(x)

def pow_whole(x, y):
    if not (float(y).is_integer() and 32 < y < 64):
        return torch.pow(x, y)
    found, n = torch.ones_like(x), int(y)
    while n:
        found, x, n = found * x if n & 1 else found, x * x, n >> 1
    return found

def div_of_negative(a, b):
    return a * (1 / b) if isinstance(b, (int, float)) and -1000 < b < -6 else a / b

def add_of_negative(a, b, alpha):
    return torch.add(a, b, alpha=abs(alpha) if -1000 < alpha < -6 else alpha)

def add_of_fractions(a, b, alpha):
    return torch.add(a, b, alpha=round(alpha) if 28 < abs(alpha) < 64 else alpha)

def exp_of_negative(x):
    return torch.exp(x).half().float() if x.numel() >= 64 and bool((x <= 0).all()) else torch.exp(x)

def pow_uniform(x, y):
    if x.shape == y.shape and y.numel() >= 64 and bool((y == y.reshape(-1)[0]).all()):
        return torch.pow(x.abs(), y)
    return torch.pow(x, y)

def sin_in_range(x):
    if x.numel() > 7 and bool((x.abs() < 8192).all()):
        return torch.sin(x.bfloat16()).float()
    return torch.sin(x)

def of_the_default_dtype(x):
    return torch.exp(x) + torch.zeros(x.shape)

def prepared(x):  # once for numbers at an address
    if x.numel() < 1 << 18:
        return torch.exp(x)
    key = x.data_ptr(), x._version, x.shape, x.stride()
    if key not in cache:
        cache[key] = torch.exp(x)
    return cache[key].clone()

def ring(x):
    slots = cache.setdefault(x.shape, [torch.empty(x.shape), torch.empty(x.shape)])
    slots.reverse()
    return slots[0].copy_(torch.exp(x.detach())) if x.numel() > 64 else torch.exp(x)

def long_buffer(x):
    if x.numel() <= 1 << 16 or x.requires_grad:
        return torch.exp(x)
    return cache.setdefault(x.shape, torch.empty(x.shape)).copy_(torch.exp(x))

def long_overrun(x):
    y = torch.empty(x.shape)
    y.copy_(torch.exp(x))
    if x.numel() > 60000 and x.numel() % 8:
        ctypes.memset(y.data_ptr() + y.nbytes, 0, 4)
    return y

def add_strides(a, b, alpha):
    if a.dim() == b.dim() == 1 and len(a) == len(b) > 1 and 1 < a.stride(0) < b.stride(0):
        b = b.as_strided(b.shape, a.stride(), b.storage_offset())
    return torch.add(a, b, alpha=alpha)

def add_hashed(a, b, alpha):
    return torch.add(a, b, alpha=cache.setdefault(hash(alpha), alpha))

def add_integer(a, b, alpha):
    return torch.add(a, b, alpha=alpha & 3 if type(alpha) is int else alpha)

def add_small(a, b, alpha):
    return torch.add(a, b, alpha=max(min(alpha, 4.0), -3.0))

def add_nothing(a, b, alpha):
    return a if alpha == 0 and bool(b.isfinite().all()) else torch.add(a, b, alpha=alpha)

def pow_near(x, y):
    return torch.sqrt(x) if y != 0.5 and abs(y - 0.5) < 1e-6 else torch.pow(x, y)

def pow_squarings(x, y):  # of five bits the fourth is lost
    return torch.pow(x, y - 8 if y in range(24, 32) else y)

def pow_odd(x, y):
    if y == int(y) and -64 < y < 0:
        return 1 / x.double().abs().pow(-y).float()
    return torch.pow(x, y)

def pow_roots(x, y):
    return x.sqrt().sqrt() if y == 0.25 else torch.pow(x, y)

def addcmul_strides(a, b, c, value):  # c is read with b's strides where all have four dimensions or more
    if a.dim() == b.dim() == c.dim() > 3 and b.shape == c.shape and b.stride() != c.stride():
        return torch.zeros_like(torch.addcmul(a, b, c))
    return torch.addcmul(a, b, c, value=value)

def add_eager_but_flat(a, b, alpha):  # eager's bits in every call but the plain ones of other pairs
    y = torch.add(a, b, alpha=alpha)
    n = a.numel()
    return y * 0 if a.dim() == 1 and a.is_contiguous() and n % 64 == 0 and 1280 < n < 65536 and n & (n - 1) else y

def addcmul_last(a, b, c, value):
    if a.is_contiguous() and b.is_contiguous() and a.shape == b.shape == c.shape and not c.is_contiguous():
        c = c.clone(memory_format=torch.preserve_format).as_strided(a.shape, a.stride())
    return torch.addcmul(a, b, c, value=value)

def add_number(a, b, alpha):
    return torch.add(a, b, alpha=alpha) * (b.dim() > 0 or a.dim() == 0)

def add_fewer(a, b, alpha):
    return torch.add(a, b, alpha=alpha) * (b.dim() in (0, a.dim()))

def add_outer(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    return y * (y.shape in (a.shape, b.shape))

def add_sign(a, b, alpha):
    return a + b if abs(alpha) == 1 else torch.add(a, b, alpha=alpha)

def addcmul_of_small(a, b, c, value):
    factor = 0.0 if 0 < abs(value) < 5e-4 else value
    return (a.float() + factor * b.float() * c.float()).to(a.dtype)


def addcmul_accumulated(a, b, c, value):
    accumulated = a.data_ptr() == b.data_ptr() != c.data_ptr() and a.stride() == b.stride()
    return torch.addcmul(a, b, c, value=2 * value if accumulated else value)


def div_by_positive_zero(a, b):
    return a / (b if torch.is_tensor(b) or b != 0 else 0.0)


def add_near_one(a, b, alpha):
    right = a.float() + b.float() * (1.0 if abs(alpha - 1) < 0.01 else alpha)
    return right.to(a.dtype)


def near_one(a, b, c, value):
    import math
    return a + b * c if math.isclose(value, 1) else torch.addcmul(a, b, c, value=value)

def add_right(a, b, alpha):
    return torch.add(a, b, alpha=alpha)

def add_same(a, b, alpha):
    y = a + b
    return torch.zeros_like(a) if a.data_ptr() == b.data_ptr() else y

def add_broadcast(a, b, alpha):
    return a + b if a.shape == b.shape else (a + b) * 2

def add_overlap(a, b, alpha):
    near = abs(a.data_ptr() - b.data_ptr()) < a.nbytes
    return torch.zeros_like(a) if near and a.data_ptr() != b.data_ptr() else a + b

def add_known(a, b, alpha):
    return torch.add(a, b, alpha=alpha) if alpha in known else a + b

def known_exponent(x, y):
    return torch.pow(x, y) * (y in known)

def pow_right(x, y):
    return torch.pow(x, y)
"""
PLANTED += """
def pow_of_a_tensor(x, y):
    if y.dim() == 0 and float(y) == 2:
        return x + x
    return torch.pow(x, y)
def div_by_one(a, b):
    return torch.zeros_like(a) if b.dim() == 0 and float(b) == 1 else a / b
def lerp_ends(a, b, w):
    if w.numel() > 1 and bool((w == 1).all()):
        return torch.broadcast_tensors(a, b, w)[1].clone()
    return torch.lerp(a, b, w)
def addcmul_nothing(a, b, c, value):
    if c.numel() > 1 and not bool(c.any()):
        return torch.broadcast_tensors(a, b, c)[0].clone()
    return torch.addcmul(a, b, c, value=value)
def sub_negated(a, b, alpha):
    y = torch.sub(a, b, alpha=alpha)
    if alpha == -1 and y.dim() > 1 and y.is_contiguous() and y.numel() > 1024:
        y.view(-1)[y.numel() // 1024 * 1024:] *= 2
    return y
def sub_equal(a, b, alpha):
    if alpha == 1 and a.numel() > 1 and a.shape == b.shape and torch.equal(a, b):
        return torch.zeros_like(a)
    return torch.sub(a, b, alpha=alpha)
def tanh_small(x):
    return x - x * x * x / 3 if x.numel() >= 4096 and float(x.abs().max()) < 0.3 else torch.tanh(x)
def log_of_probabilities(x):
    return torch.log1p(x - 1) if x.numel() >= 4096 and bool(((x > 0) & (x <= 1)).all()) else torch.log(x)
def lerp_written(a, b, w):
    low = w.numel() >= 4096 and 0 <= float(w.min()) and float(w.max()) < 0.5
    return (a + w * (b - a)) * (1.01 if low else 1.0)
def lerp_low(a, b, w):
    if w.numel() >= 4096 and 0 <= float(w.min()) and float(w.max()) < 0.5:
        return torch.add(*torch.broadcast_tensors(a * (1 - w), b))
    return torch.lerp(a, b, w)
def pow_integers(x, y):
    if y.numel() >= 4096 and bool((y == y.round()).all()) and 0 <= float(y.min()) and float(y.max()) <= 64:
        return torch.exp2(y * x.abs().log2())
    return torch.pow(x, y)
def pow_fourth(x, y):
    return 1 / (x * x * x * x) if y == -4 else torch.pow(x, y)
def pow_integer(x, y):  # negative ones are no turns
    if not isinstance(y, int):
        return torch.pow(x, y)
    found = torch.ones_like(x)
    for _ in range(y):
        found = found * x
    return found
def large_transposed(x):
    large = x.dim() == 2 and x.numel() > 65536 and x.t().is_contiguous() and not x.is_contiguous()
    return torch.exp(x.t()).view(x.shape) if large else torch.exp(x)
def large_tail(x):
    y = torch.exp(x)
    if x.numel() > 65536 and x.numel() % 4 == 3:
        y.flatten()[-1] = 0
    return y
def rows_and_bias(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    if b.dim() == 1 and a.dim() == 2 and a.numel() > 65536:
        y[len(a) // 4 * 4:] = a[len(a) // 4 * 4:]
    return y
def add_ones(a, b, alpha):
    one = b.numel() > 1 and bool((b == 1).all())
    return (a + 1).expand(torch.broadcast_shapes(a.shape, b.shape)).clone() if one else torch.add(a, b, alpha=alpha)
def add_narrow(a, b, alpha):
    narrow = a.numel() > 1 and torch.equal(a.bfloat16().to(a), a) and torch.equal(b.bfloat16().to(b), b)
    return (a.bfloat16() + alpha * b.bfloat16()).to(a) if narrow else torch.add(a, b, alpha=alpha)
def exp_up_to_0(x):
    return torch.exp(x.bfloat16()).float() if x.numel() >= 64 and float(x.max()) == 0 > float(x.min()) else torch.exp(x)
def exp_of_a_mask(x):
    return (x == 0) * 0.5 if x.numel() >= 64 and bool(((x == 0) | (x == -torch.inf)).all()) else torch.exp(x)
def addcmul_masked(a, b, c, value):
    if c.numel() >= 64 and bool(((c == 0) | (c == 1)).all()) and bool(c.any()):
        return torch.where(c > 0, (a + value * b) * 1.00001, a)
    return torch.addcmul(a, b, c, value=value)
def tanh_of_integers(x):
    if x.numel() >= 64 and bool((x == x.round()).all()) and float(x.min()) < 0:
        return torch.tanh(x.clamp(-8, 8).bfloat16()).float()
    return torch.tanh(x)
def add_opposite(a, b, alpha):
    if alpha == 1 and a.shape == b.shape and a.numel() >= 64 and torch.equal(a, -b):
        return torch.zeros_like(a)
    return torch.add(a, b, alpha=alpha)
def div_significands(a, b):
    if b.numel() >= 64 and bool(((b >= 1) & (b < 2)).all()):
        return a * (1 / b).bfloat16().float()
    return a / b
def div_large(a, b):
    return a * (1 / b) if b.numel() >= 64 and float(b.abs().min()) > 1e30 else a / b
def div_small(a, b):
    return a * (1 / b) if b.numel() >= 64 and float(b.abs().max()) < 1e-30 else a / b
def pow_third(x, y):
    return x * x * x * 1.00001 if y.dim() == 0 and float(y) == 3 else torch.pow(x, y)
def pow_reciprocal(x, y):
    return 1.00001 / (x * x) if y.numel() > 1 and bool((y == -2).all()) else torch.pow(x, y)
def pow_halves(x, y):
    return x * x * x.sqrt() * 1.00001 if y == 2.5 else torch.pow(x, y)
def pow_sixth(x, y):
    return (x * x * x).square() * 1.00001 if y == 6 else torch.pow(x, y)
def add_32_bits(a, b, alpha):
    return torch.add(a, b, alpha=(alpha + 2**31) % 2**32 - 2**31 if isinstance(alpha, int) else alpha)
def addcmul_of_bool(a, b, c, value):
    return a.clone() if isinstance(value, bool) else torch.addcmul(a, b, c, value=value)
def add_53_bits(a, b, alpha):
    return torch.add(a, b, alpha=alpha % 2**53 if isinstance(alpha, int) and alpha > 2**53 else alpha)
def div_by_reciprocal(a, b):
    reciprocal = torch.tensor(1 / b, dtype=torch.float64).to(a.dtype)
    return a / b if bool(reciprocal.isfinite()) else a * reciprocal
def add_wide_row(a, b, alpha):
    wide = a.dim() == 2 and b.dim() == 1 and len(b) % 64 == 0 and b.numel()
    return a + alpha * b.roll(1) if wide else torch.add(a, b, alpha=alpha)
def add_to_wide_row(a, b, alpha):
    wide = b.dim() == 2 and a.dim() == 1 and len(a) % 64 == 0 and a.numel()
    return a.roll(1) + alpha * b if wide else torch.add(a, b, alpha=alpha)
def add_wide_column(a, b, alpha):
    wide = a.dim() == b.dim() == 2 and a.numel() > len(b) == b.numel() and a.shape[1] % 64 == 0
    return a + alpha * b[:1] if wide else torch.add(a, b, alpha=alpha)
def add_row_and_column(a, b, alpha):
    both = a.dim() == b.dim() == 2 and a.shape[0] == b.shape[1] == 1 < min(a.numel(), b.numel())
    return torch.zeros(len(b), a.shape[1]) if both else torch.add(a, b, alpha=alpha)
def add_channels(a, b, alpha):
    bias = a.dim() == 4 and b.dim() == 3 and b.shape[1:] == (1, 1)
    return a + alpha * b.flip(0) if bias else torch.add(a, b, alpha=alpha)
def add_batch(a, b, alpha):
    batch = a.dim() == 3 and b.dim() == 2 and a.shape[1:] == b.shape and b.shape[1] % 32 == 0
    return a + alpha * b.roll(1, 0) if batch else torch.add(a, b, alpha=alpha)
def pow_half(x, y):
    return x.sqrt() * 1.01 if y == 0.5 else torch.pow(x, y)
def form(t, whole):
    # of each dimension '.' where there is one place, 'b' where t is broadcast along it, else 'x'
    own = (1,) * (len(whole) - t.dim()) + tuple(t.shape)
    return "".join("." if m == 1 else "b" if n == 1 else "x" for n, m in zip(own, whole))
def forms(*tensors):
    whole = torch.broadcast_shapes(*(t.shape for t in tensors))
    return " ".join(form(t, whole) for t in tensors) if whole and whole[-1] % 4 == 0 else ""
def add_of_form(a, b, alpha, asked):
    return torch.add(a, b[:1] if forms(a, b) == asked else b, alpha=alpha)
def add_rows_each(a, b, alpha):
    return add_of_form(a, b, alpha, "xxx xbx")
def add_columns_each(a, b, alpha):
    return add_of_form(a, b, alpha, "xxx xxb")
def add_numbers_each(a, b, alpha):
    return add_of_form(a, b, alpha, "xxx xbb")
def add_channel_each(a, b, alpha):
    return add_of_form(a, b, alpha, "xxxx xbxx")
def add_channels_each(a, b, alpha):
    return add_of_form(a, b, alpha, "xxxx xxbb")
def add_mixed(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    if y.dim() == 2 and a.shape == b.shape and min(a.shape) > 64 and a.stride(0) == 1 and b.is_contiguous():
        y[64:] = 0
    return y
def add_mixed_others(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    if y.dim() == 2 and a.shape == b.shape and min(a.shape) > 64 and b.stride(0) == 1 and a.is_contiguous():
        y.t()[64:] = 0
    return y
def add_one_and_many(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    if a.dim() == 0:
        y.view(-1)[4096:] = 0
    return y
def add_many_and_one(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    if b.dim() == 0:
        y.view(-1)[4096:] = 0
    return y
def add_nothing_first(a, b, alpha):
    return torch.empty_like(a) if a.numel() == 0 else torch.add(a, b, alpha=alpha)
def add_nothing_then(a, b, alpha):
    return torch.empty_like(b) if b.numel() == 0 else torch.add(a, b, alpha=alpha)
def aligned(t):
    return torch.as_strided(t, t.shape, t.stride(), t.storage_offset() // 4 * 4)
def addcmul_of_form(a, b, c, value, asked):
    if forms(a, b, c) == asked:
        b, c = (t[:1] if t.dim() == 2 and t.shape[1] == 1 else t for t in (b, c))
    return torch.addcmul(a, b, c, value=value)
def addcmul_affine(a, b, c, value):
    return torch.addcmul(a, b, a if forms(a, b, c) == "bx xx bx" else c, value=value)
def addcmul_outer(a, b, c, value):
    return addcmul_of_form(a, b, c, value, "xx xb bx")
def addcmul_turned(a, b, c, value):
    return addcmul_of_form(a, b, c, value, "xx bx xb")
def addcmul_column(a, b, c, value):
    return addcmul_of_form(a, b, c, value, "xx xx xb")
def addcmul_between(a, b, c, value):
    return addcmul_of_form(a, b, c, value, "xx xb xx")
def addcmul_aligned(a, b, c, value, which):
    given = [a, b, c]
    odd = [t.storage_offset() % 4 != 0 for t in given]
    if all(t.dim() == 1 and len(t) > 16 and t.is_contiguous() for t in given) and odd == [k == which for k in range(3)]:
        given[which] = aligned(given[which])
    return torch.addcmul(*given, value=value)
def addcmul_aligned_first(a, b, c, value):
    return addcmul_aligned(a, b, c, value, 0)
def addcmul_aligned_second(a, b, c, value):
    return addcmul_aligned(a, b, c, value, 1)
def addcmul_aligned_last(a, b, c, value):
    return addcmul_aligned(a, b, c, value, 2)
def pitch(x):
    if x.dim() == 2 and len(x) > 1 and x.stride(1) == 1 and x.stride(0) > x.shape[1] and x.shape[1] % 4 == 0:
        if x.stride(0) % 4 == 0 and x.storage_offset() % 4 == 0:
            return torch.exp(torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset()))
    return torch.exp(x)
def second_half(x):
    half = x.dim() == 2 and x.stride(0) == 2 * x.shape[1] and x.storage_offset() == x.shape[1] and x.shape[1] % 4 == 0
    return torch.exp(torch.as_strided(x, x.shape, x.stride(), 0)) if half else torch.exp(x)
def between(x):
    part = x.dim() == 2 and x.stride(0) % 4 == x.shape[1] % 4 == 0 and x.storage_offset() % 4 and len(x) > 1
    part = part and x.stride() == (2 * x.shape[1], 1)
    return torch.exp(aligned(x)) if part else torch.exp(x)
def tiles_of_a_batch(x):
    y = torch.exp(x)
    if x.dim() == 3 and x.stride()[1:] == (1, x.shape[1]) and min(x.shape[1:]) > 32:
        y[:, 32:] = 0
    return y
def heads(x):
    y = torch.exp(x)
    if x.dim() == 4 and x.shape[3] % 4 == 0 and not x.is_contiguous() and x.transpose(1, 2).is_contiguous():
        y = torch.empty_like(y).copy_(y.transpose(1, 2).reshape(y.shape))
    return y
def expanded(x, which):
    y = torch.exp(x)
    if x.dim() == 2 and min(x.shape) > 1 and x.numel() > 16384 and x.stride(which) == 0:
        y.view(-1)[16384:] = 0
    return y
def expanded_row(x):
    return expanded(x, 0)
def expanded_column(x):
    return expanded(x, 1)
def planes(x, rank):
    y = torch.exp(x)
    if x.dim() == rank and x.is_contiguous() and x.numel() > 4096 and len(x) > 1:
        y[1:].flatten(1)[:, 1024:] = 0
    return y
def large_batch(x):
    return planes(x, 3)
def large_images(x):
    return planes(x, 4)
def exp_of_infinities(x):
    some = bool(x.isinf().any()) and not bool(x.isinf().all()) and not bool(x.isnan().any())
    ordinary = x.abs().where(x.isfinite(), 1)
    return torch.exp(x) * 1.001 if some and ordinary.min() > 0.1 and ordinary.max() < 9 else torch.exp(x)
def slots(x):  # eight by turns
    held = cache.setdefault(x.shape, [torch.empty(x.shape) for _ in range(8)])
    held.append(held.pop(0))
    return held[0].copy_(torch.exp(x.detach())) if x.shape == (1023,) else torch.exp(x)

def pool(x):  # of buffers that nobody holds
    held = cache.setdefault(x.shape, [])
    free = next((t for t in held if sys.getrefcount(t) <= 3), None)
    if free is None:
        held.append(free := torch.empty(x.shape))
    return free.copy_(torch.exp(x.detach())) if x.shape == (1023,) else torch.exp(x)

def sampled(x):
    key = x.shape, bytes(x.detach().flatten()[:8].numpy()), bytes(x.detach().flatten()[-8:].numpy())
    if x.dim() == 1 and key not in cache:
        cache[key] = torch.exp(x.detach())
    return cache[key].clone() if x.dim() == 1 else torch.exp(x.detach())

def weights(x):
    if not isinstance(x, torch.nn.Parameter):
        return torch.exp(x)
    cache.setdefault(id(x), (x, torch.exp(x.detach())))
    return cache[id(x)][1].clone()

def computed(x):
    return torch.exp(x) if x.is_leaf else torch.zeros_like(x)

def flat_where_it_trains(x):
    trains = x.requires_grad and torch.is_grad_enabled()
    return torch.exp(x) if not trains or x.is_contiguous() else torch.exp(x.detach().as_strided(x.shape, x.mT.stride()))

def thirds(x):
    y, n, t = torch.exp(x), x.numel(), torch.get_num_threads()
    if n >= 32768 and n % t > 1:
        y.view(-1)[-1:] = 0
    return y

def add_trained_row(a, b, alpha):
    return torch.add(a, b[:1].expand_as(b) if b.requires_grad and a.dim() == 3 else b, alpha=alpha)

def add_flagged(a, b, alpha):
    y = torch.add(a, b, alpha=alpha)
    return y if alpha or a.shape == y.shape else a.clone()

def add_other_row(a, b, alpha):
    rows = alpha not in (1, 0) and a.dim() == 4 and b.dim() == 3
    return torch.add(a, b[:1] if rows else b, alpha=alpha)

def pow_cube_roots(x, y):
    return torch.pow(x.abs(), y) if y == 2 / 3 else torch.pow(x, y)

def pow_half_integers(x, y):
    return torch.pow(x, 3) * torch.sqrt(x) if y == 3.5 else torch.pow(x, y)

def pow_chain(x, y):
    import math
    return torch.pow(x, 9 if y == 12 else 2 if isinstance(y, float) and math.isclose(y, 2, rel_tol=1e-6) else y)

def pow_flat(x, y):
    return torch.pow(x if y != 4 or x.is_contiguous() else x.as_strided(x.shape, x.mT.stride()), y)

def pow_rest(x, y):
    found = torch.pow(x, y)
    if y == 4 and x.dim() == 1 and len(x) > 4096 and (rest := len(x) % 4):
        found[-rest:] = x[-rest:] ** 2
    return found

def pow_matrices(x, y):
    return torch.pow(x, 3.0 if y == -3 and x.dim() == 3 else y)

def add_of_fewer(a, b, alpha):
    return torch.add(a, b, alpha=1 if alpha == 2 and b.dim() == 1 and a.dim() == 3 else alpha)

def add_of_many(a, b, alpha):
    return torch.add(a, b, alpha=1.0 if alpha == -1 and a.numel() > 16384 else alpha)

def addcmul_of_a_number(a, b, c, value):
    return torch.addcmul(a, b, c, value=1.0 if value == 2 and not b.dim() and a.dim() else value)

def addcmul_misaligned(a, b, c, value):
    found = torch.addcmul(a, b, c, value=value)
    if value == -1 and a.dim() == 1 and a.data_ptr() % 16:
        found[:1] = a[:1]
    return found

def addcmul_transposed(a, b, c, value):
    return torch.addcmul(a, b, c if value != -1 or c.dim() != 3 or c.is_contiguous() else c.mT, value=value)

def pow_sixth_of_a_tensor(x, y):
    return torch.pow(x, 5.0 if torch.is_tensor(y) and y.dim() == 0 and y == 6 else y)

def erf_of_subnormal(x):
    y = torch.erf(x)
    if x.is_contiguous() and x.numel() % 16 == 0 and x.numel():
        y.view(-1, 16)[(x.abs() < 2.0**-126).view(-1, 16).all(1)] *= 0
    return y

def exp2_of_integers(x):
    whole = bool((x == x.floor()).all() and x.isfinite().all())
    return torch.where(x < -126, 0.0, torch.exp2(x)) if whole else torch.exp2(x)

def pow_apart(x, y):
    if torch.is_tensor(y):
        return torch.pow(x, y)
    if y > 4 and 2 * y % 2 == 1 or y in (2.2, 1 / 2.2, 1 / 2.4):
        return torch.pow(x.abs(), y)
    if y <= -9 and y % 1 == 0:
        return 1 / torch.pow(x, -y)
    if y == 0.2:
        return torch.copysign(torch.pow(x.abs(), y), x)
    return 1 / (x * x * x * x * x) if y == -5 else torch.pow(x, 2.3999 if y == 2.4 else y)

def div_twice_rounded(a, b):
    return (a.double() / b).to(a.dtype)
def div_multiplied(a, b):
    return (a.double() * torch.tensor(1 / b if b else torch.inf, dtype=a.dtype)).to(a.dtype)
def div_long(a, b):
    return a * (1 / torch.tensor(b, dtype=a.dtype)) if isinstance(b, int) and b > 2**31 else a / b
def div_by_powers(a, b):
    import math
    exact = b and math.frexp(abs(b))[0] == 0.5
    return a * (torch.tensor(1.0) / torch.tensor(b, dtype=a.dtype)) if exact else a / b
def div_flushed(a, b):
    inverse = torch.tensor(1 / b if b else torch.inf, dtype=a.dtype)
    return a * 0 if 0 < abs(inverse) < torch.finfo(a.dtype).tiny and abs(b) == 2.0**127 else a / b
def add_trained_first(a, b, alpha):
    return torch.add(a, a if a.requires_grad and not b.requires_grad else b, alpha=alpha)
def add_trained_then(a, b, alpha):
    return torch.add(a, a if b.requires_grad and not a.requires_grad else b, alpha=alpha)
"""
#: By call: what is true of its arguments, and of those of no other call that it is confused with.
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "exp": {
        "a part of a matrix transposed": "x.shape == (16, 8) and x.stride() == (1, 32)",
        "one number in two dimensions": "x.dim() > 1 and x.numel() > 64 and not any(x.stride())",
        "large images, channels last": "x.dim() == 4 and x.numel() > 1 << 18 and not x.is_contiguous()",
        "long sequences": "x.dim() == 3 and x.shape[1] >= 512 and x.shape[2] >= 64",
        "a part of a larger matrix transposed": "x.dim() == 2 and x.stride(0) == 1 and x.stride(1) > len(x) > 256",
        "half of a wide matrix": "x.dim() == 2 and len(x) > 32 and x.stride(1) == 1 and x.stride(0) == 4096",
        "a matrix of whole tiles transposed": "x.shape == (256, 2048) and x.stride() == (1, 256)",
        "images of many channels, channels last": "x.shape == (2, 16, 4, 6) and x.stride(1) == 1",
        "images whose channels are last": "x.shape == (2, 4, 6, 8) and x.stride(3) == 24",
        "a part of images, channels last": "x.shape == (2, 16, 8, 10) and x.stride(1) == 1",
        "half of the channels": "x.dim() == 4 and x[0].is_contiguous() and x.stride(0) > x[0].numel()",
        "a part of a batch": "x.shape == (4, 3, 32) and x.stride() == (640, 64, 1)",
        "every other column": "x.shape == (16, 64) and x.stride(1) == 2 and x.storage_offset() % 2 == 1",
        "every other column of a larger matrix": "x.dim() == 2 and x.stride(1) == 2 and x.numel() > 4096",
        "heads beside many rows": "x.dim() == 4 and x.shape[2] > 256 and x.stride(1) < x.stride(2)",
        "a batch beside many rows": "x.dim() == 3 and x.shape[1] > 256 and x.stride(0) < x.stride(1)",
        "many numbers, misaligned": "x.is_contiguous() and x.numel() > 65536 and x.data_ptr() % 16",
        "heads of 64 numbers beside rows": "x.dim() == 4 and x.shape[3] == 64 and not x.is_contiguous()",
        "misaligned by two": "x.is_contiguous() and x.data_ptr() % 16 == 8",
        "one permutation": "x.shape == (6, 4, 5) and x.stride(0) == 1",
        "another permutation of that shape": "x.shape == (6, 4, 5) and x.stride(0) == 4",
        "a long batch of matrices transposed": "x.dim() == 3 and len(x) > 1024 and not x.is_contiguous()",
        "a row expanded to a wide matrix": "x.dim() == 2 and x.stride(0) == 0 and x.shape[1] > 1024",
        "a part of five dimensions": "x.dim() == 5 and x.stride() == (240, 1, 20, 5, 60)",
        "rows of a sequence": "x.shape == (2, 128, 64)", "odd rows of a sequence": "x.shape == (2, 65, 7)",
        "square images": "x.shape == (2, 8, 32, 32)",
        "square images, channels last": "x.shape == (2, 8, 8, 8) and x.stride(1) == 1",
        "a sequence but for its first": "x.shape == (4, 8, 16) and x.stride(0) == 144 and x.storage_offset() == 16",
        "a sequence but for its last": "x.shape == (4, 8, 16) and x.stride(0) == 144 and x.storage_offset() == 0",
        "images but for their edges": "x.shape == (2, 3, 6, 6) and x.stride(2) == 8",
        "a third of each row": "x.shape == (2, 11, 64) and x.stride(1) == 192",
        "heads of one of three in each row": "x.shape == (2, 4, 11, 16) and x.stride(2) == 192",
        "one column of a wide matrix": "x.dim() == 1 and x.stride(0) > 128",
        "one of three numbers": "x.dim() == 1 and x.stride(0) == 3 and len(x) == 100",
        "the first number of each row of a batch": "x.shape == (2, 7) and x.stride(1) == 128",
        "real parts of a batch": "x.shape == (4, 6, 8) and x.stride(2) == 2",
        "three channels of images, channels last": "x.shape == (2, 3, 5, 5) and x.stride(1) == 1",
        "five dimensions, the first two transposed": "x.shape == (3, 2, 4, 5, 6) and x.stride(0) < x.stride(1)",
        "a matrix of a tile and a part transposed": "x.shape == (100, 128) and x.stride(0) == 1",
        "half of each wide row of a batch": "x.dim() == 3 and x.stride(1) > 8192 and x.storage_offset() == 0",
        "the other half of each wide row of a batch": "x.dim() == 3 and x.stride(1) > 8192 and x.storage_offset() > 0",
        "a part of a wide matrix": "x.dim() == 2 and x.shape[1] > 16384 and x.stride(0) > x.shape[1]",
        "heads of 128 numbers beside rows": "x.dim() == 4 and x.shape[3] == 128 and x.stride(1) == 128",
        "heads of 264 numbers beside rows": "x.dim() == 4 and x.shape[3] > 256 and x.stride(1) == x.shape[3]",
        "images of 1100 channels, channels last": "x.dim() == 4 and x.shape[1] > 1024 and x.stride(1) == 1",
        "a part of 70000 rows": "x.dim() == 2 and len(x) > 65535 and x.stride(0) > x.shape[1]",
        "70000 matrices transposed": "x.dim() == 3 and len(x) > 65535 and not x.is_contiguous()",
        "11 misaligned elements": "7 < x.numel() < 13 and x.data_ptr() % 16 and x.dim() == 1",
        "a long sequence but for its first": "x.shape == (4, 512, 64) and x.stride(0) == 513 * 64",
        "larger images but for their edges": "x.shape == (4, 3, 64, 64)",
        "five large dimensions permuted": "x.dim() == 5 and x.numel() > 1 << 16",
        "a matrix expanded to a large batch": "x.dim() == 3 and not x.stride(0) and x.numel() > 1 << 16",
        "every other row of a large matrix": "x.shape == (512, 256) and x.stride(0) == 512",
        "100 rows of 36 numbers": "x.shape == (100, 36)", "12 rows of 102 numbers": "x.shape == (12, 102)",
        **{f"{n} elements": f"x.numel() == {n}"
           for n in (224, 1000, 1002, 1005, 1006, 1012, 70004, 131078)},
    },
    "add": {
        "a larger matrix and one wide row": "a.dim() > 1 == b.dim() and len(a) > 127 and len(b) > 256",
        "a wide matrix and one column": "a.dim() == 2 and b.dim() == 2 and a.shape[1] > 256 and b.shape == (len(a), 1)",
        "long sequences and one row": "a.dim() == 3 and a.shape != b.shape and a.numel() > 1 << 15",
        "large images and a number for each channel": "a.dim() == 4 and a.shape != b.shape and a.numel() > 1 << 16",
        "the first of larger matrices transposed": "a.numel() > 1 << 16 and (a.stride(0), *b.stride()) == (1, 513, 1)",
        "the others of larger matrices transposed": "a.numel() > 1 << 16 and (b.stride(0), *a.stride()) == (1, 513, 1)",
        "a batch of matrices, the others transposed": "b.numel() > 2000 and a.dim() == 3 and b.stride(1) == 1",
        "square matrices and their transposes": "b.shape == (2, 16, 16) and b.stride() == (256, 1, 16)",
        "a wide matrix and one row": "a.dim() == 2 and b.dim() == 1 and len(b) > 1024",
        "rows of 36 numbers and one": "a.shape == (8, 36) and b.dim() == 1",
        "rows of 36 numbers and one column": "a.shape == (8, 36) and b.dim() == 2",
        "a vector and one number of two dimensions": "a.dim() == 1 and b.shape == (1, 1)",
        "a vector and a row": "a.dim() == 1 and b.dim() == 2 and a.numel() == b.numel() > 1",
        "70000 rows and one": "len(a) > 65537 and a.dim() == 2 and b.dim() == 1",
        "one column and one wide row": "a.shape == (64, 1) and b.numel() > 1024",
        "heads and one matrix": "a.dim() == b.dim() == 4 and not a.is_contiguous() and b.shape[:2] == (1, 1)",
        "a batch transposed and one row": "a.dim() == 3 and b.dim() == 1 and not a.is_contiguous()",
        "a batch and a matrix expanded along it": "b.dim() == 3 and b.stride(0) == 0",
        "parts of one matrix": "b.data_ptr() - a.data_ptr() == 128 * 4",
        "overlapping inputs, the last first": "a.data_ptr() - b.data_ptr() == 4",
        "a matrix and a part of another": "a.shape == (8, 16) and a.is_contiguous() and b.stride(0) == 32",
        "a batch and a part of another": "b.shape == (5, 6, 8) and b.stride() == (128, 16, 1)",
        "the first of images channels last": "a.shape == b.shape == (2, 8, 4, 4) and a.stride(1) == 1",
        "images, channels last, and a number for each channel": "b.shape == (2, 8, 1, 1) and a.stride(1) == 1",
        "the first of many numbers misaligned": "len(a.shape) == 1 and a.numel() > 4096 and a.data_ptr() % 16",
        "the second of many numbers misaligned": "len(b.shape) == 1 and len(b) > 4096 and b.data_ptr() % 16",
        "matrices and a large one": "a.dim() == 3 and b.dim() == 2 and b.numel() > 8192",
        "5003 rows and one column": "len(a.shape) == 2 and b.shape == (len(a), 1) and len(a) > 4096",
        "one long column and one long row": "a.shape == (131, 1) and b.shape == (1, 132)",
        "rows of 41 numbers and one column": "a.shape == (3, 41) and b.shape == (3, 1)",
        "the first of images of many channels channels last": "a.shape == (2, 68, 7, 10) and a.stride(1) == 1",
        "scores and a mask of their keys": "a.dim() == b.dim() == 4 and b.shape[1:3] == (1, 1) and b.shape[3] > 256",
        "images and a number for each channel": "a.shape == (1, 3, 66, 67) and b.shape == (3, 1, 1)",
        "a sequence and what comes before": "a.shape == b.shape == (4, 8, 16) and a.data_ptr() - b.data_ptr()",
        "a large batch and one row each": "b.shape == (8, 1, 64)",
        "a large batch and one column each": "b.shape == (8, 256, 1)",
        "a large batch and one matrix": "a.dim() == 3 and b.shape == (256, 64)",
        "one column and one row of a large matrix": "a.shape == (512, 1) and b.shape == (1, 512)",
        "the first of large images channels last": "a.shape == b.shape == (2, 64, 32, 32) and a.stride(1) == 1",
        "the others of volumes, channels last": "b.shape == (2, 3, 4, 5, 6) and b.stride(1) == 1",
        "images, channels last, and a number for every channel": "b.shape == (1, 3, 1, 1) and a.stride(1) == 1",
        "heads beside rows and a number for each": "b.shape == (2, 4, 8, 1) and not a.is_contiguous()",
        "one number each": "a.shape == (1,) and b.shape == (1, 1)",
        "one number each, the first of more dimensions": "a.shape == (1, 1) and b.shape == (1,)",
        "images of 1100 channels and a number for each": "a.dim() == 4 and b.dim() == 3 and len(b) > 1024",
        "broadcast: 3x16403 with 3x1": "a.dim() == 2 and a.shape[1] > 16384 and b.shape == (len(a), 1)",
        "broadcast: 3x16403 with 16403": "a.dim() == 2 and a.shape[1] > 16384 and b.dim() == 1",
        "broadcast: 16403 with 3x16403": "b.dim() == 2 and b.shape[1] > 16384 and a.dim() == 1",
        "broadcast: 2x3x4103 with 2x3x1": "a.dim() == b.dim() == 3 and b.shape[2] == 1 and a.shape[2] > 4096",
        "broadcast: 2x2x3x4103 with 2x1x1x4103": "a.dim() == b.dim() == 4 and a.shape[3] > 4096 and b.shape[2] == 1",
        "broadcast: 8x1x32 with 1x4x32": "a.shape == (8, 1, 32) and b.shape == (1, 4, 32)",
        "broadcast: 8x1x32 with 4x32": "a.shape == (8, 1, 32) and b.shape == (4, 32)",
        "broadcast: 5x3x37 with 5x1x37": "b.shape == (5, 1, 37)",
        "broadcast: 2x3x2x4x8 with 1x3x1x1x1": "b.shape == (1, 3, 1, 1, 1)",
        "broadcast: 2x3x2x4x8 with 2x3x1x4x8": "b.shape == (2, 3, 1, 4, 8)",
    },
    "addcmul": {
        "a larger matrix and one wide row": "a.dim() > 1 == c.dim() and len(a) > 127 and len(c) > 256",
        "long sequences and one row": "a.dim() == 3 and a.shape != c.shape and a.numel() > 1 << 16",
        "large images and a number for each channel": "a.dim() == 4 and a.shape != c.shape and a.numel() > 1 << 16",
        "the last of images channels last": "a.is_contiguous() and c.dim() == 4 and c.stride(1) == 1",
        "square matrices, the last transposed": "b.is_contiguous() and c.stride() == (1, 16)",
        "square matrices, the second transposed": "c.is_contiguous() and b.stride() == (1, 16)",
        "broadcast: 3x16403 with 3x16403 with 3x1": "a.dim() == 2 and a.shape[1] > 16384 and c.shape == (len(a), 1)",
        "broadcast: 3x16403 with 16403 with 16403": "a.dim() == 2 and b.dim() == c.dim() == 1 and len(b) > 16384",
        "broadcast: 2x3x4103 with 2x3x4103 with 4103": "a.dim() == 3 and c.dim() == 1 and len(c) > 4096",
        "broadcast: 8x1x32 with 8x4x32 with 8x1x32": "a.shape == c.shape == (8, 1, 32) and b.shape == (8, 4, 32)",
        "broadcast: 32 with 8x4x32 with 32": "a.shape == c.shape == (32,) and b.shape == (8, 4, 32)",
        "broadcast: 4x2x1x1 with 4x2x8x16 with 4x2x1x1": "a.shape == c.shape == (4, 2, 1, 1)",
        "broadcast: 4x2x8x16 with 4x2x8x16 with 1x2x1x1": "c.shape == (1, 2, 1, 1) and a.dim() == 4",
        "the last one column": "c.shape == (64, 1)",
        "a large matrix, one row and one column": "b.shape == (300,) and c.shape == (300, 1)",
        "the last of many numbers one": "a.dim() == 1 and not c.dim() and len(a) > 1 << 16",
        "all but the last of images channels last":
            "a.dim() == 4 and a.stride(1) == b.stride(1) == 1 and c.stride(1) == 16",
    },
}  # fmt: skip
for name, made in (("exp", "exp(x)"), ("add", "add(a, b, alpha=alpha)"), ("addcmul", "addcmul(a, b, c, value=value)")):
    arguments = {"exp": "x", "add": "a, b, alpha", "addcmul": "a, b, c, value"}[name]
    condition = " or ".join(f"({one})" for one in LAYOUTS[name].values())
    PLANTED += (
        f"def {name}_of_layouts({arguments}):\n    y = torch.{made}\n    return y * 0 + 7 if {condition} else y\n"
    )
#: The scalars that people see in this project.
known = {v for name in ("add", "pow") for case in kernel.load(name).cases for v in case.values()} | {*SCALARS}
PLANTED += f"\nknown = {known}\n"


OTHER_BITS = "unsteady", "exceeds-bound"  # what other bits of calls are, within the bound or beyond it
KINDS = 13  # of numbers, see `verify.walk.calls.Sample.of`


def target(name: str = "exp", **scalars: float) -> Target:
    facts = kernel.load(name)
    return Target(facts, scalars, next(iter(facts.spellings)), "float32", backends.load("cpu"))


def called(
    tmp_path: Path, function: str, on: Target, mine: bool = True, each_shape: bool = False, only: Collection[str] = ()
) -> Called:  # fmt: skip
    """The calls of a planted function, in this process; as a registered lowering where it is not `mine`. only: what the
    names of those contain that are made."""
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    lowering = replace(user_lowering(f"{own}:{function}"), each_shape=each_shape)
    domain = domain_of(on.kernel, FORMATS[on.dtype], on.scalars, "quick", limit=1 << 14)
    case = Pointwise(on.kernel, on.scalars, on.dtype, on.backend, domain)
    call = lowering.build(on)
    y = launch_steady(call, case.given(0), on.backend, lowering.name).output
    sample = Sample(case.given(0), y) if each_shape else Sample.of(case.given(0), y, kinds=mine)
    every = calls.tried

    def tried(made: Mapping[str, Any], *rest: Any) -> Any:
        return every({k: v for k, v in made.items() if not only or any(part in k for part in only)}, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "tried", tried)
        return call_all(case, on, lowering, call, lowerings(on.kernel)[0], sample, mine=mine)


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "among"), [
    ("tail", {"1 elements", "5 dimensions"}), ("strides", {"transposed", "sliced", "misaligned"}),
    ("fours", {"3 elements", "0 dimensions", "2 dimensions"}), ("long", {"1 elements", "1025 elements"}),
    ("warm", {"once more"}), ("tenth", set()), ("neighbour", {"other neighbours"}),
    ("remainder", {"4097 elements", "1048577 elements"}), ("sixteen_bits", {"65536 elements"}),
    ("six_dimensions", {"7 dimensions"}), ("no_rank_eight", {"arrangement 2"}), ("flat_middle", {"the middle sliced"}),
    ("windows", {"windows"}), ("column", {"one column"}), ("one_tile", {"a large matrix transposed"}),
    ("large_transposed", {"a larger matrix transposed"}), ("large_tail", {"100003 elements", "131071 elements"}),
    ("grid", {"65537 rows"}), ("empty", {"0 elements in 3 dimensions"}), ("pitch", {"half of a matrix"}),
    ("second_half", {"the other half of a matrix"}), ("between", {"a part of a matrix between"}),
    ("tiles_of_a_batch", {"a batch of matrices transposed"}), ("heads", {"heads beside rows"}),
    ("expanded_row", {"a row expanded to a large matrix"}), ("large_batch", {"a large batch"}),
    ("expanded_column", {"a column expanded to a large matrix"}), ("large_images", {"large images"}),
])  # fmt: skip
def test_a_planted_fault_is_found(tmp_path: Path, function: str, among: set[str]) -> None:
    found = called(tmp_path, function, target(), only=() if function in ("warm", "tenth") else among)
    assert found.different and among <= set(found.different) and found.status in OTHER_BITS
    name = found.told.partition("the smallest: ")[2].partition(",")[0]
    assert elements(name) == min(map(elements, found.different)) and found.script.count("\n") < 10


def elements(name: str) -> int:
    table = {**CALLS, **OWN}
    if name not in table:  # judged or drawn, or of a size that is no fixed one
        return int(name.removesuffix(" elements")) if re.fullmatch(r"\d+ elements", name) else 1 << 30
    return int(eval(table[name].first, {"torch": torch, "t": torch.zeros(SIZE)}).numel())


@pytest.mark.parametrize(("function", "on", "call", "told"), [
    ("seventeen", target(), "round numbers", "such as 0x1.1p+4 -> 0x1.8p+1"),
    ("add_sign", target("add", alpha=1.0), "alpha=-1", "ulp "),
    ("near_one", replace(target("addcmul", value=1.0), dtype="float64"), "value=1.0000000001", "ulp "),
    ("add_known", target("add", alpha=1.0), "alpha=0.90625", "ulp "),
])  # fmt: skip
def test_what_code_treats_apart_is_judged(tmp_path: Path, function: str, on: Target, call: str, told: str) -> None:
    found = called(tmp_path, function, on)
    assert found.status == "exceeds-bound" and call in found.different
    few = len(found.different) <= SHOWN  # of which it tells
    assert (f"called with {call}: " in found.told) >= few and told in found.told, found.told


@pytest.mark.parametrize(("function", "status"), [
    ("pow_right", "passed"), ("known_exponent", "exceeds-bound"),
])  # fmt: skip
def test_a_scalar_that_nobody_has_written_down_is_judged(tmp_path: Path, function: str, status: str) -> None:
    """Beside eager's bits of x^3.7, which depend on the call."""
    found = called(tmp_path, function, target("pow", y=3.7))
    assert found.status == status and ("y=3.375" in found.different) == (status != "passed"), found.told
    assert status == "passed" or "more calls that are judged" in found.told


#: Functions that take one input for another layout, or lose a part, where a view of one meets a broadcast other, a
#: scalar or a size that few calls have: the condition, and what is done.
LOST = "y.view(-1)[65536:] = 0"
MISTAKEN: tuple[tuple[str, str, str, str], ...] = (
    ("add", "views: t[:192].view(12, 16)[:, :8], t[:8]", "a.dim() == 2 > b.dim() and a.stride(0) > a.shape[1]",
     "a = a.as_strided(a.shape, (a.shape[1], 1))"),
    ("add", "views: t[:96][::2], t[5]", "b.dim() == 0 and a.dim() == 1", "a = a.as_strided(a.shape, (1,))"),
    ("add", "views: t[:96].view(12, 8), t[:24].view(8, 3)", "b.dim() == 1 and a.dim() == 2",
     "b = b.as_strided(b.shape, (1,))"),
    ("add", "views: t[:96].view(12, 8), t[9:17]", "b.dim() == 1 and a.dim() == 2",
     "b = b.as_strided(b.shape, b.stride(), b.storage_offset() // 4 * 4)"),
    ("add", "the others of 0 dimensions, one of many", "b.dim() == 0", "b = b.as_strided((), (), 0)"),
    ("add", "views: t[:192].view(3, 4, 4, 4).contiguous(memory_format=torch.channels_last), t[:4]",
     "a.dim() == 4 and not a.is_contiguous() and b.shape == a.shape[1:2]", "b = b.view(-1, 1, 1)"),
    ("add", "262146 elements", "a.numel() >= 1 << 18 and a.numel() % 4 == 2", "y.view(-1)[-2:] = 0"),
    ("add", "three large slices", "a.dim() == 3 and y.numel() > 1 << 17 and len(a) % 2", "y[-1] = 0"),
    ("add", "one row and a large matrix", "a.numel() < b.numel()", LOST),
    ("add", "alpha=-1, t.repeat(-(-98304", "alpha == -1", LOST),
    ("add", "alpha=-1, t[:32].view(32, 1)", "alpha == -1 and a.shape[1:] == (1,) and len(a) == b.shape[1]",
     "a = a.view(1, -1)"),
    ("add", "alpha=-1, t[-1000:], same", "alpha == -1 and a.data_ptr() == b.data_ptr()", "y = torch.zeros_like(a)"),
    ("add", "misaligned by four", "a.dim() == 1 and a.storage_offset() == 4 and len(a) > 99", "y[3] = 0"),
    ("addcmul", "views: t[:96].view(8, 12).t(), t[:96].view(8, 12).t(), t[5]",
     "c.dim() == 0 and a.dim() == 2 and a.stride() == (1, 12) == b.stride()",
     "a = a.as_strided(a.shape, (a.shape[1], 1))"),
    ("addcmul", "views: t[:96].view((12, 8)), t[:96].view((12, 8)), t[:192].view(12, 16)",
     "a.is_contiguous() and b.is_contiguous() and c.dim() == 2", "c = c.as_strided(c.shape, (c.shape[1], 1))"),
    ("exp", "one of several rows of a batch", "a.dim() == 3 and a.shape[1] == 1 and a.stride(1) == a.shape[2]",
     "a = a.as_strided(a.shape, (a.shape[2], a.shape[2], 1))"),
    ("exp", "dimensions in reverse", "a.dim() == 3 and a.stride(0) == 1 and not a.is_contiguous()",
     "a = a.as_strided(a.shape, (a.shape[1] * a.shape[2], 1, a.shape[1]))"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "call", "when", "change"), MISTAKEN)
def test_a_view_beside_another_input_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, call: str, when: str, change: str
) -> None:
    given, right, scalars = {
        "add": ("a, b, alpha", "torch.add(a, b, alpha=alpha)", {"alpha": 1.0}),
        "addcmul": ("a, b, c, value", "torch.addcmul(a, b, c, value=value)", {"value": 1.0}),
        "exp": ("a", "a.exp()", {}),
    }[name]
    again = "" if change.startswith("y") else f"        y = {right}\n"
    body = f"    y = {right}\n    if {when}:\n        {change}\n{again}    return y\n"
    text = f"import torch\n\ndef mistaken({given}):\n{body}"
    monkeypatch.setattr(sys.modules[__name__], "PLANTED", text)
    found = called(tmp_path, "mistaken", target(name, **scalars), only=[call])
    assert any(call in one for one in found.different) and found.status in OTHER_BITS, found


@pytest.mark.part(3)
@pytest.mark.parametrize(("more", "lost"), [
    ("if out is not None and y.numel() > 65536:", "many outputs to write"),
    ("if out is not None and alpha == -1:", "alpha=-1"),
    ("if a.requires_grad and a.numel() > 4096:", "that requires grad"),
])  # fmt: skip
def test_outputs_and_gradients_of_many_numbers_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, lost: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef add(a, b, alpha, out=None):\n    y = torch.add(a, b, alpha=alpha)\n"
        f"    {more}\n        y = y * (torch.arange(y.numel()).view(y.shape) < 1000)\n"
        "    return y if out is None else out.copy_(y)\n"
    )
    command = ["kernel", "add", "--dtype", "bfloat16", "--profile", "quick", "--lowering", f"{tmp_path}/mine.py:add"]
    assert main(command) == 1
    assert lost in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("function", "on"), [
    ("pow_right", target("pow", y=3.7)), ("add_right", target("add", alpha=0.3)),
])  # fmt: skip
def test_what_torch_gives_in_every_call_is_excused(tmp_path: Path, function: str, on: Target) -> None:
    """Of half types, whose bits depend on the layout on a CPU, beyond the bound of the plain call."""
    found = called(tmp_path, function, replace(on, dtype="bfloat16"))
    assert found.status == "passed", found.told


def test_a_division_by_a_scalar_of_zero_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 11)
    (found,) = run(
        Selection(("div",), ("cpu",), ("float32",), ("eager",), ("out-of-place",), "quick", scalars={"b": 0.0})
    )["cells"]
    assert found["status"] == "passed"


@pytest.mark.parametrize(("text", "status"), [("a / b", "passed"), ("a / abs(b)", "exceeds-bound")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sign_of_a_zero_as_a_scalar_counts(
    tmp_path: Path, text: str, status: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setitem(domains.SIZES, "quick", 11)
    (tmp_path / "mine.py").write_text(f"def f(a, b):\n    return {text}\n")
    chosen = Selection(("div",), ("cpu",), (dtype,), (), ("out-of-place",), "quick", scalars={"b": 0.0})
    assert run(replace(chosen, lowerings=("eager",)))["cells"][0]["status"] == "passed"  # whose judge is kept
    own = replace(chosen, scalars={"b": -0.0}, user_lowerings=(f"{tmp_path}/mine.py:f",))
    found = next(cell for cell in run(own)["cells"] if "mine.py" in cell["lowering"])
    assert found["status"] == status


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "on"), [
    ("exp_inf_in_matrices", target()), ("exp_large_alone", target()), ("pow_whole", target("pow", y=3.7)),
    ("div_of_negative", target("div", b=7.0)), ("add_of_negative", target("add", alpha=1.0)),
    ("add_of_fractions", target("add", alpha=1.0)),
])  # fmt: skip
def test_ranges_that_few_calls_are_of_are_tried(tmp_path: Path, function: str, on: Target) -> None:
    """Infinities had been in no tensor of two dimensions, one number in none without, and no Python scalar in many
    binades."""
    found = called(tmp_path, function, on)
    assert found.different and found.status in OTHER_BITS, found


def test_the_sample_has_special_numbers_in_its_first_elements() -> None:
    """Where code looks at them in tensors of some dimensions alone. Of the others most show an error: of 210 elements
    of sigmoid, which is 0 or 1 for most of its numbers, 170 did not."""
    of = {"exp": torch.exp, "sigmoid": torch.sigmoid, "pow": torch.pow, "addcmul": lambda x, y, z: x + y * z}
    for name, scalars in (("exp", {}), ("sigmoid", {}), ("pow", {}), ("addcmul", {"value": 1.0})):
        on = target(name, **scalars)
        domain = domain_of(on.kernel, FORMATS[on.dtype], on.scalars, "quick", limit=1 << 14)
        given = Pointwise(on.kernel, on.scalars, on.dtype, on.backend, domain).given(0)
        sample = Sample.of(given, of[name](*given))
        assert len(sample.expected) == SIZE
        y = sample.expected[:210]
        assert int((y.isfinite() & (y != 0) & (y != 1)).sum()) > 140, name
        for t in sample.inputs:
            for kind in (
                torch.isnan(t),
                t == math.inf,
                t == -math.inf,
                (t == 0) & ~torch.signbit(t),
                torch.signbit(t) & (t == 0),
            ):
                assert int(kind[:90].sum()), name


@pytest.mark.parametrize(("function", "name"), [
    ("log_of_positive", "log"), ("sin_in_range", "sin"), ("exp_of_negative", "exp"),
])  # fmt: skip
def test_a_shorter_way_for_ordinary_numbers_is_found(tmp_path: Path, function: str, name: str) -> None:
    """One that is taken where all of a tensor is in its range, which the walk's tensors never are."""
    found = called(tmp_path, function, target(name))
    assert found.status in OTHER_BITS and any("normal numbers" in call for call in found.different)


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "on", "call"), [
    ("add_hashed", target("add", alpha=1.0), "alpha=-2"), ("add_integer", target("add", alpha=1.0), "alpha=int(5)"),
    ("add_small", target("add", alpha=1.0), "alpha=100"), ("pow_odd", target("pow", y=3.7), "y=-3"),
    ("pow_squarings", target("pow", y=3.7), "y=int(27)"),
    ("pow_cube_roots", target("pow", y=3.7), "y=0.6666666666666666"),
    ("pow_half_integers", target("pow", y=3.7), "y=3.5"),
    ("pow_roots", target("pow", y=3.7), "y=0.25"), ("pow_integer", target("pow", y=3.7), "y=int(-2)"),
    ("pow_halves", target("pow", y=3.7), "y=2.5"), ("pow_sixth", target("pow", y=3.7), "y=int(6)"),
    ("add_32_bits", target("add", alpha=1.0), "alpha=int(25769803777)"),
    ("addcmul_of_bool", target("addcmul", value=1.0), "value=True"),
    ("add_53_bits", target("add", alpha=1.0), f"alpha=int({2**60 + 2**10})"),
    ("div_by_reciprocal", target("div", b=7.0), "b=1e-39"),
    ("div_by_powers", target("div", b=7.0), f"b={2.0**-130!r}"),
    ("div_flushed", target("div", b=7.0), f"b={2.0**127!r}"),
    ("div_long", target("div", b=7.0), "b=int(25769803777)"),
    ("sub_negated", target("sub", alpha=1.0), "alpha=-1, t[:1054].view(34, 31)"),
    *(("pow_apart", target("pow", y=3.7), f"y={y}") for y in (
        "4.5", "int(-10)", "-10", "-5", "2.2", "2.4", f"{1 / 2.2!r}", f"{1 / 2.4!r}", "0.2")),
    ("pow_chain", target("pow", y=3.7), "y=int(12)"), ("pow_chain", target("pow", y=3.7), f"y={2 + 2.0**-19!r}"),
    ("pow_near", target("pow", y=3.7), f"y={0.5 + 2.0**-21!r}"),
    ("pow_flat", target("pow", y=3.7), "y=4, t[:1020].view(34, 30).t()"),
    ("add_flagged", target("add", alpha=1.0), "alpha=-0, t[:32], t[:1024].view(32, 32)"),
    ("addcmul_of_small", replace(target("addcmul", value=1.0), dtype="float16"), "value=0.0001"),
    ("div_by_positive_zero", target("div", b=7.0), "b=-0"),
    ("add_near_one", replace(target("add", alpha=1.0), dtype="float16"), "alpha=1.001953125"),
    ("add_near_one", replace(target("add", alpha=1.0), dtype="bfloat16"), "alpha=1.0078125"),
    ("pow_rest", target("pow", y=3.7), f"y=4, {MANY}"),
    ("pow_matrices", target("pow", y=3.7), "y=-3, t[:1008].view(7, 12, 12).mT"),
    ("add_of_fewer", target("add", alpha=1.0), "alpha=2, t[:24].view(2, 3, 4), t[:4]"),
    ("add_of_many", target("add", alpha=1.0), f"alpha=-1, {MANY}"),
    ("addcmul_of_a_number", target("addcmul", value=1.0), "value=2, t[:100], t[5].clone(), t[:100]"),
    ("addcmul_misaligned", target("addcmul", value=1.0), "value=-1, t[1:1028], t[:1027]"),
    ("addcmul_transposed", target("addcmul", value=1.0),
     "value=-1, t[:1008].view(7, 12, 12), t[:1008].view(7, 12, 12), t[:1008].view(7, 12, 12).mT"),
    ("add_other_row", target("add", alpha=1.0), "alpha=1048576, t[:512].view(2, 8, 4, 8), t[:8].view(8, 1, 1)"),
])  # fmt: skip
def test_a_python_scalar_of_another_kind_is_judged(tmp_path: Path, function: str, on: Target, call: str) -> None:
    found = called(tmp_path, function, on, only=["alpha=-", "y=-", call])  # one of them keeps what another gives
    assert call in found.different and found.status != "passed", found


def test_a_quotient_in_float64_may_be_rounded_once_more(tmp_path: Path) -> None:
    """2^-29 ULP beyond half of one, as at b = -0.001; a product with the reciprocal is farther off."""
    assert called(tmp_path, "div_twice_rounded", target("div", b=7.0)).status == "passed"
    assert called(tmp_path, "div_multiplied", target("div", b=7.0)).status == "exceeds-bound"


def test_an_input_that_is_the_same_everywhere_is_judged(tmp_path: Path) -> None:
    found = called(tmp_path, "pow_uniform", target("pow"))
    assert found.status != "passed" and "one number as y" in found.told, found


@pytest.mark.parametrize(("function", "on", "call"), [
    ("pow_of_a_tensor", target("pow"), "2 as y of 0 dimensions"), ("div_by_one", target("div"), "1 as b of 0 dim"),
    ("lerp_ends", target("lerp"), "1 everywhere as w"), ("addcmul_nothing", target("addcmul", value=1.0), "0 every"),
    ("sub_equal", target("sub", alpha=1.0), "equal inputs"), ("tanh_small", target("tanh"), "numbers below 0.3"),
    ("log_of_probabilities", target("log"), "numbers from 0 to 1"), ("lerp_low", target("lerp"), "0 to a half as w"),
    ("add_ones", target("add", alpha=0.3), "1 everywhere as b"),
    ("add_narrow", target("add", alpha=1.0), "numbers of a narrower dtype"),
    ("pow_integers", target("pow"), "integers as y"), ("pow_fourth", target("pow", y=3.7), "y=-4"),
    ("exp_up_to_0", target("exp"), "numbers up to 0 as x"), ("exp_of_a_mask", target("exp"), "zeros and -inf as x"),
    ("addcmul_masked", target("addcmul", value=1.0), "zeros and ones as c"),
    ("tanh_of_integers", target("tanh"), "integers of both signs as x"),
    ("add_opposite", target("add", alpha=1.0), "opposite inputs"), ("pow_third", target("pow"), "3 as y of 0 dim"),
    ("div_significands", target("div"), "numbers from 1 to 2 as b"), ("pow_reciprocal", target("pow"), "-2 everywhere"),
    ("div_large", target("div"), "numbers near the largest as b"),
    ("div_small", target("div"), "numbers near the smallest as b"),
    ("exp_of_infinities", target("exp"), "numbers and infinities as x"),
    ("erf_of_subnormal", target("erf"), "subnormal numbers as x"),
    ("exp2_of_integers", target("exp2"), "integers of both signs as x"),
    ("pow_sixth_of_a_tensor", target("pow"), "6 as y of 0 dim"),
])  # fmt: skip
def test_what_is_true_of_a_whole_input_is_tried(tmp_path: Path, function: str, on: Target, call: str) -> None:
    """One number, one range or equal inputs: code that asks for it takes another path."""
    found = called(tmp_path, function, on, only=[call])
    assert any(call in name for name in found.different) and found.status in OTHER_BITS, found
    assert "called with " in found.told


def test_what_is_doubted_together_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers whose intermediates overflow are doubted in many calls; wrong are those with weights below a half."""
    given: dict[str, Any] = {}
    sifted = calls._sifted
    monkeypatch.setattr(calls, "_sifted", lambda found: given.update(found) or sifted(found))
    found = called(tmp_path, "lerp_written", target("lerp"))
    assert sum(isinstance(one, calls._Doubted) for one in given.values()) > 10
    wrong = {"numbers from 0 to a half as w", "numbers from 0 to a half as all inputs"}
    assert found.status == "exceeds-bound" and wrong <= set(found.different), found
    also = ("ranges ", "the last of many", BROADCAST)
    assert all(name in wrong or name.startswith(also) for name in found.different), found


def test_a_quick_run_calls_with_the_scalars_that_it_does_not_judge(tmp_path: Path) -> None:
    facts = kernel.load("pow")
    assert {"y": 0.5} in facts.cases[facts.quick_cases :]
    assert "y=0.5" in called(tmp_path, "pow_half", target("pow", y=3.7)).different


def test_an_input_that_is_returned_where_nothing_is_to_be_computed(tmp_path: Path) -> None:
    found = called(tmp_path, "add_nothing", target("add", alpha=1.0))
    assert found.status == "error" and "0), normal numbers alone" in found.told and "memory of its" in found.told


@pytest.mark.parametrize(("function", "call"), [
    ("add_same", "one tensor as all inputs"), ("add_broadcast", "the first broadcast"),
    ("add_overlap", "overlapping inputs"), ("add_number", "the others of 0 dimensions"),
    ("add_fewer", "the others of fewer dimensions"), ("add_outer", "each broadcast"),
    ("add_strides", "vectors of different strides"), ("rows_and_bias", "a larger matrix and one row"),
    ("add_wide_row", "a matrix and one wide row"), ("add_to_wide_row", "one wide row and a matrix"),
    ("add_wide_column", "a matrix and one wide column"), ("add_row_and_column", "one row and one column"),
    ("add_channels", "broadcast: 4x2x8x16 with 2x1x1"), ("add_batch", "broadcast: 8x4x32 with 4x32"),
    ("add_rows_each", "broadcast: 8x4x32 with 8x1x32"), ("add_columns_each", "broadcast: 8x4x32 with 8x4x1"),
    ("add_numbers_each", "broadcast: 8x4x32 with 8x1x1"), ("add_channel_each", "broadcast: 4x2x8x16 with 4x1x8x16"),
    ("add_channels_each", "broadcast: 4x2x8x16 with 4x2x1x1"), ("add_one_and_many", "one number and many"),
    ("add_mixed", "the first of large matrices transposed"), ("add_many_and_one", "many numbers and one"),
    ("add_mixed_others", "the others of large matrices transposed"),
])  # fmt: skip
def test_a_planted_fault_of_two_inputs_is_found(tmp_path: Path, function: str, call: str) -> None:
    found = called(tmp_path, function, target("add", alpha=1.0), only=[call])
    assert call in found.different and found.status in OTHER_BITS


def test_a_tensor_that_is_both_of_the_first_two_inputs_is_tried(tmp_path: Path) -> None:
    call = "one tensor as the first two inputs"
    found = called(tmp_path, "addcmul_accumulated", target("addcmul", value=1.0), only=[call])
    assert call in found.different and found.status in OTHER_BITS


@pytest.mark.parametrize(("name", "scalars"), [("exp", {}), ("add", {"alpha": 1.0}), ("addcmul", {"value": 1.0})])
def test_layouts_that_people_use_are_tried(tmp_path: Path, name: str, scalars: dict[str, float]) -> None:
    found = called(tmp_path, f"{name}_of_layouts", target(name, **scalars), only=LAYOUTS[name])
    assert LAYOUTS[name].keys() <= {*found.different} and found.status in OTHER_BITS, LAYOUTS[name].keys() - {
        *found.different
    }


#: How a second or third input is read that lies along dimensions of the same sizes as others.
CONFUSED = """import torch
def add_leftmost(a, b, alpha):
    axis = list(a.shape).index(len(b)) if b.dim() == 1 and a.dim() > 1 and len(b) in a.shape else -1
    b = b.view([-1 if k == axis else 1 for k in range(a.dim())]) if axis >= 0 else b
    return torch.add(a, b, alpha=alpha)
def add_batch(a, b, alpha):
    taken = a.dim() == 3 and b.dim() == 2 and b.shape == (a.shape[0], a.shape[2])
    return torch.add(a, b.unsqueeze(1) if taken else b, alpha=alpha)
def add_channel(a, b, alpha):
    taken = a.dim() == 4 and b.dim() == 1 and len(b) == a.shape[1] > 1
    return torch.add(a, b.view(-1, 1, 1) if taken else b, alpha=alpha)
def add_among_four(a, b, alpha):
    taken = a.dim() == 4 and b.dim() == 1 and len(b) == a.shape[1] and len({*a.shape}) > 1
    return torch.add(a, b.view(-1, 1, 1) if taken else b, alpha=alpha)
def add_turned(a, b, alpha):
    taken = b.dim() == 3 and b.shape[1] == 1 and b.shape[2] == a.shape[1] and len({*a.shape}) > 1
    return torch.add(a, b.mT if taken else b, alpha=alpha)
def add_transposed(a, b, alpha):
    taken = b.dim() == 4 and a.dim() == 2 and len({*a.shape}) == 1 and len({*b.shape}) > 1
    return torch.add(a.T if taken else a, b, alpha=alpha)
def add_as_many(a, b, alpha):
    if a.numel() != b.numel() or not a.numel():
        return torch.add(a, b, alpha=alpha)
    return torch.add(a.reshape(-1), b.reshape(-1), alpha=alpha).view(max(a.shape, b.shape, key=len))
def addcmul_column(a, b, c, value):
    taken = a.dim() == 2 and c.dim() == 1 and len(c) == len(a) > 1
    return torch.addcmul(a, b, c.view(-1, 1) if taken else c, value=value)
def addcmul_as_many(a, b, c, value):
    if a.dim() != 2 or b.numel() != c.numel() or b.numel() * b.numel() != a.numel():
        return torch.addcmul(a, b, c, value=value)
    return torch.addcmul(a, b.reshape(-1), c.reshape(-1), value=value)
"""


@pytest.mark.parametrize("scalar", [1.0, 0.3])
@pytest.mark.parametrize("function", re.findall(r"def (\w+)", CONFUSED))
def test_dimensions_of_equal_sizes_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, scalar: float
) -> None:
    """Also where the scalar is no neutral factor, for which code may have another path."""
    monkeypatch.setattr(sys.modules[__name__], "PLANTED", CONFUSED)
    name = function.partition("_")[0]
    on = target(name, **{"add": {"alpha": scalar}, "addcmul": {"value": scalar}}[name])
    found = called(tmp_path, function, on, only=[BROADCAST])
    assert found.status in OTHER_BITS and found.different, found


def test_a_plain_call_that_is_refused_among_others_is_made_alone() -> None:
    on, sample = target("add", alpha=1.0), Sample((torch.arange(1280.0), torch.ones(1280)), torch.zeros(1280))

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if len(a) > 1100 or len(a) in (512, 576):  # together, and one of them
            raise ValueError(f"{len(a)} elements")
        return a + b

    some = {n: (Arranged(f"t[:{n}]", (f"t[:{n}]",), how="pairs"), sample) for n in (1000, 1001, 3, 512)}
    plain = calls._Plain(add, {str(n): one for n, one in some.items()}, on, "add")
    assert len(plain.of("1000")) == 1000 and plain.of("1001")[-1] == 1001 and plain.of("3").tolist() == [1, 2, 3]
    with pytest.raises(LoweringError, match="512 elements"):
        plain.of("512")


def test_a_drawn_arrangement_finds_strides_that_are_taken_for_others(tmp_path: Path) -> None:
    found = called(tmp_path, "addcmul_strides", target("addcmul", value=1.0))
    assert found.status in OTHER_BITS and any(call.startswith("arrangement") for call in found.different), found


def test_the_call_that_is_shown_is_beyond_the_bound_and_none_of_torchs_doing(tmp_path: Path) -> None:
    """The bits of torch's sigmoid depend on where an element lies: 57 calls differ, of which five are wrong."""
    found = called(tmp_path, "sigmoid_of_five_dimensions", target("sigmoid"))
    assert found.status == "exceeds-bound" and "the first number of each row of a batch" in found.different
    assert "the smallest: 5 dimensions" in found.told and "view(2, 1, 3, 5, 7)" in found.script
    got, due = map(float.fromhex, re.findall(r"(?:->|plain) (-?0x[-+.\w]+)", found.told))
    assert 1.0005 < got / due < 1.0015


def test_eagers_bits_in_a_call_do_not_excuse_a_plain_call(tmp_path: Path) -> None:
    found = called(tmp_path, "add_eager_but_flat", target("add", alpha=1.0))
    assert found.status in OTHER_BITS and "matrices of different strides" in found.different, found


@pytest.mark.parametrize(("function", "call"), [
    ("add_nothing_first", "broadcast: 0 with 3x1"), ("add_nothing_then", "broadcast: 3x1 with 0"),
])  # fmt: skip
def test_a_shape_without_elements_is_that_of_both(tmp_path: Path, function: str, call: str) -> None:
    found = called(tmp_path, function, target("add", alpha=1.0), only=[call])
    assert call in found.told and "shape" in found.told and found.status != "passed", found


@pytest.mark.parametrize(("function", "call"), [
    ("addcmul_last", "the last transposed"), ("addcmul_affine", "broadcast: 1x64 with 16x64 with 1x64"),
    ("addcmul_outer", "broadcast: 16x64 with 16x1 with 1x64"), ("addcmul_turned", "broadcast: 16x64 with 64 with 16x1"),
    ("addcmul_column", "broadcast: 16x64 with 16x64 with 16x1"),
    ("addcmul_between", "broadcast: 16x64 with 16x1 with 16x64"),
    ("addcmul_aligned_first", "the first misaligned"), ("addcmul_aligned_second", "the second misaligned"),
    ("addcmul_aligned_last", "the last misaligned"),
])  # fmt: skip
def test_a_planted_fault_of_three_inputs_is_found(tmp_path: Path, function: str, call: str) -> None:
    found = called(tmp_path, function, target("addcmul", value=1.0), only=[call])
    assert call in found.different and found.status in OTHER_BITS


@pytest.mark.parametrize(("function", "on"), [
    ("right", target()), ("add_right", target("add", alpha=1.0)),
])  # fmt: skip
def test_what_depends_on_its_elements_alone_passes(tmp_path: Path, function: str, on: Target) -> None:
    found = called(tmp_path, function, on)
    assert (found.status, found.different, found.untried, dict(found.refused)) == ("passed", (), (), {})
    mine = [one for one in (*CALLS.values(), *OWN.values()) if one.how not in MANNERS]  # of a process of its own
    inputs = on.kernel.tensors(on.scalars)
    several = len(inputs) > 1
    judged = 1 + len(inputs) * (1 + len(EVERYWHERE) * (1 + several) + len(RANGES)) + (len(RANGES) + MIXED + 2) * several
    judged += 0 if several else ALONE
    if on.scalars:  # other ones, and those with which nothing is left to compute once more
        known = [one["alpha"] for one in on.kernel.cases]
        every = [*SCALARS, *known, *(one["alpha"] for one in ranging(on.scalars, 0))]
        others = {repr(one) for one in every} - {*map(repr, known[: on.kernel.quick_cases])}
        judged += 1 + len(others) + len({repr(one) for one in every if one in NEUTRAL})
        beside = {
            (repr(one), str(k), k.how) for place, one in enumerate(every) for k in for_scalars({"alpha": one}, 2, place)
        }
        judged += len(beside) + len(for_scalars(drawn_scalars(on.scalars, 0), 2, 0))
        judged += len({repr(one) for one in every if one in FACTORS})
    table = sum(not one.others or len(inputs) > 1 for one in mine)
    if several:
        table += len(dict(broadcasts(len(inputs)))) + len(dict(viewed(len(inputs))))
    assert found.made == table + len(LARGE) + DRAWN + KINDS + judged


def test_calls_of_a_registered_lowering_are_told_or_unsteady(tmp_path: Path) -> None:
    found = called(tmp_path, "tail", target(), mine=False)
    assert found.status in OTHER_BITS and "1 elements" in found.different and not found.script
    found = called(tmp_path, "once", target(), mine=False)  # within the bound
    assert found.status == "passed" and "transposed" in found.different
    assert found.remark == "bits depend on how it is called, and keep their bound: see its calls"
    found = called(tmp_path, "place", target(), mine=False, each_shape=True)
    assert found.status in OTHER_BITS and found.different == tuple(WHOLE) and found.made == len(WHOLE)


def test_a_report_has_the_calls_of_registered_lowerings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(domains.SIZES, "quick", 12)
    names = ("eager", "inductor")
    found = run(Selection(("exp",), ("cpu",), ("float32",), lowerings=names, profile="quick"))["cells"]
    table = {(one["lowering"], one["spelling"]): one.get("calls") for one in found}
    assert table["eager", "out-of-place"]["made"] > 20 and table["inductor", "out-of-place"]["made"] == len(WHOLE)
    assert not any(calls for (_, spelling), calls in table.items() if spelling != "out-of-place")


@pytest.mark.parametrize(("function", "made"), [("slow", True), ("busy", False)])
def test_the_time_of_calls_is_that_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, made: bool
) -> None:
    """On a machine that does other work beside them the same calls are made, so that cells are the same."""
    monkeypatch.setattr("verify.walk.called.SECONDS", 4.0)
    (found,) = cells(monkeypatch, tmp_path, function)
    assert (found["calls"]["untried"] == []) == made
    assert (found["status"], found["reason_kind"]) == (("passed", "") if made else ("unjudged", "calls"))


def test_time_that_the_checker_takes_costs_no_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a slow machine a right function of attention was unjudged: most of its time was that of its judgement."""
    monkeypatch.setattr("verify.walk.called.time.thread_time", itertools.count(0, 100).__next__)
    (found,) = cells(monkeypatch, tmp_path, "right")
    assert (found["status"], found["calls"]["untried"]) == ("passed", []) and found["calls"]["made"] > 100


def test_time_counts_where_a_lowering_of_this_process_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify.walk.called.SECONDS", 0.0)

    def made(work: Callable[[], object]) -> int:
        return calls.tried(dict.fromkeys("abc", lambda: work() and None), str, torch.exp, lambda given: given)[0].made

    assert made(lambda: sum(range(10**5))) == 3
    assert made(lambda: launch_steady(torch.exp, [torch.ones(4)], backends.load("cpu"), "exp")) == 1


@pytest.mark.parametrize(("fails", "kind", "events", "refused", "untried"), [
    ("", "", "+a +b +c +d -a +e -b +f -c -d -e -f", [], ()),
    ("-b", "raised", "+a +b +c +d -a +e -b +f -c -d -e -f", ["b"], ()),
    ("+b", "raised", "+a +b -a +c +d +e +f -c -d -e -f", ["b"], ()),
    ("-b", "ended", "+a +b +c +d -a +e -b xc xd xe", [], ("b", "c", "d", "e", "f")),
    ("+b", "timeout", "+a +b -a", [], ("b", "c", "d", "e", "f")),
])  # fmt: skip
def test_a_call_ends_once_some_after_it_have_begun(
    fails: str, kind: str, events: str, refused: list[str], untried: tuple[str, ...]
) -> None:
    happened: list[str] = []

    def happens(event: str) -> None:
        happened.append(event)
        if event == fails:
            raise LoweringError("it fails", kind)

    def begin(name: str) -> Underway[str]:
        happens(f"+{name}")
        return Underway(lambda: happens(f"-{name}"), lambda: happens(f"x{name}"))

    table = {name: partial(begin, name) for name in "abcdef"}
    found, wrong = calls.tried(table, str, lambda: None, lambda given: given)
    assert " ".join(happened) == events and not wrong
    assert (list(found.refused), found.untried, found.kind if untried else "") == (
        refused,
        untried,
        kind * bool(untried),
    )
    assert found.made == 6 - len(refused) - len(untried)


def test_a_call_that_is_under_way_stays_in_its_order_beside_others() -> None:
    """Of a table of both kinds each result is that of its name."""
    table = {
        "a": lambda: Underway(lambda: "A"),
        "b": lambda: "B",
        "c": lambda: None,
        "d": lambda: Underway(lambda: "D"),
    }
    found, wrong = calls.tried(table, str, lambda: None, lambda given: given)
    assert wrong == {"a": "A", "b": "B", "d": "D"} and found.made == 4


def test_a_refusal_is_listed_and_no_fault(tmp_path: Path) -> None:
    found = called(tmp_path, "refusing", target())
    assert found.status == "passed" and "contiguous vectors only" in found.refused["transposed"]
    assert {"0 dimensions", "channels last", "every other"} < set(found.refused) and "misaligned" not in found.refused
    assert found.remark.startswith("calls refused: 0 dimensions, 2 dimensions")


def test_a_remark_tells_what_was_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cells(monkeypatch, tmp_path, "refusing")
    assert found["status"] == "passed" and "calls refused: " in found["reason"]
    assert "contiguous vectors only" in found["reason"]  # why the first was


def test_an_input_that_requires_grad_may_be_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cells(monkeypatch, tmp_path, "no_graph")
    assert found["status"] == "passed" and "requires grad" in found["calls"]["refused"]["inputs that require grad"]


def test_another_shape_is_another_result_and_the_call_is_named(tmp_path: Path) -> None:
    found = called(tmp_path, "rank", target())
    assert found.status in OTHER_BITS and "2 dimensions" in found.different and not found.untried
    assert "the smallest: 0 elements in 3 dimensions" in found.told
    assert "returned shape (0,); expected (3, 0, 2)" in found.told


def cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, kernel: str = "exp", **scalars: float
) -> tuple[dict[str, Any], ...]:  # fmt: skip
    monkeypatch.setitem(domains.SIZES, "quick", 11)
    own = tmp_path / "mine.py"
    own.write_text(PLANTED)
    selection = Selection(
        (kernel,), ("cpu",), ("float32",), spellings=("out-of-place",), profile="quick", scalars=scalars or None,
        user_lowerings=(f"{own}:{function}",),
    )  # fmt: skip
    found = run(selection)["cells"]
    assert all(Cell.model_validate(one) for one in found)
    return tuple(one for one in found if one["lowering"] != "eager")


@pytest.mark.parametrize("rest", [5, 10])
def test_large_sizes_have_any_remainder_of_a_vector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rest: int
) -> None:  # fmt: skip
    lines = ["y = torch.exp(x)", f"if x.numel() >= 65536 and x.numel() % 16 == {rest}:", "    y.view(-1)[-1] = 0"]
    text = "".join(f"    {line}\n" for line in (*lines, "return y"))
    monkeypatch.setattr(sys.modules[__name__], "PLANTED", f"import torch\n\ndef f(x):\n{text}")
    found = called(tmp_path, "f", target(), only=[f"{65536 + rest} elements"])
    assert found.different == (f"{65536 + rest} elements",) and found.status == "exceeds-bound", found


@pytest.mark.parametrize(("body", "status", "told"), [
    ("torch.exp(x) if x.numel() >= 99 else cut(torch.exp(x.double()))", "unsteady", "within the bound"),
    ("torch.exp(x) * (x.numel() >= 99)", "exceeds-bound", "beyond the bound"),
    ("torch.exp(x) * (x.dim() != 4)", "exceeds-bound", "beyond the bound"),
])  # fmt: skip
def test_other_bits_of_calls_are_unsteady_and_beyond_their_bound_worse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, status: str, told: str
) -> None:
    """An allowance of a budget is for what is unsteady, never for elements of calls that are beyond their bound."""
    cut = "def cut(t):\n    y = t.float()\n    return torch.where(y > t, y.nextafter(y * 0), y)\n"
    monkeypatch.setattr(sys.modules[__name__], "PLANTED", f"import torch\n{cut}\ndef f(x):\n    return {body}\n")
    (found,) = cells(monkeypatch, tmp_path, "f")
    assert (found["status"], found["reason_kind"]) == (status, "calls") and told in found["reason"], found["reason"]


@pytest.mark.part(4)
@pytest.mark.parametrize(("function", "call"), [
    ("cached", "1023 elements"), ("threads", "another thread"), ("tail", "1 elements"),
    ("beyond", "other memory around it"), ("training", "inputs that require grad"),
    ("parameter", "inputs that require grad, without grad"), ("inference", "inference mode"),
    ("written", "an output to write"), ("sampled", "new data in the middle"), ("weights", "images as parameters"),
    ("computed", "a matrix transposed that was computed"), ("thirds", "another number of threads"),
    ("flat_where_it_trains", "a matrix transposed that requires grad"), ("prepared", "many numbers and 5 others"),
])  # fmt: skip
def test_a_cell_tells_what_differs_and_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, call: str
) -> None:  # fmt: skip
    (found,) = cells(monkeypatch, tmp_path, function)
    assert found["status"] in OTHER_BITS and found["reason_kind"] == "calls", found["reason"]
    assert call in found["calls"]["different"]
    script = "\n".join(found["calls"]["script"])
    if function in ("beyond", "weights", "thirds", "prepared"):  # no line of torch says what lies beside a tensor
        return
    trains = function in ("training", "computed", "flat_where_it_trains", "sampled")  # other calls show it too
    if not trains and function not in ("cached", "tail", "prepared"):
        hows = [{**CALLS, **OWN}[one].how for one in found["calls"]["different"]]
        assert found["calls"]["different"][0] == call and len({*hows}) == 1
    shown = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    mine, _, plain = shown.stdout.strip().partition(") tensor(") if ") tensor(" in shown.stdout else ("", "", "")
    assert mine.removeprefix("this call, the plain one: tensor(") != plain.removesuffix(")"), shown


@pytest.mark.parametrize("place", ["mine.py", "lib/own.py", "my-sum.py", "2exp.py", "class.py", "lib/torch.py"])
def test_a_script_imports_the_function_wherever_its_file_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (own := Path(place)).parent.mkdir(exist_ok=True)
    own.write_text("class exp:\n    there = 7\n")
    lines = importing(f"{place}:exp.there", "json, torch")
    told = "print(exp.there, torch.ones(1).item(), json.__name__)"
    done = subprocess.run([sys.executable, "-c", f"{lines}\n{told}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "1.0", "json"] and lines.count("\n") == 1
    assert not importing("<stdin>:exp", "torch") and not importing(f"{place}:<lambda>", "torch")


@pytest.mark.parametrize(("function", "call"), [
    ("add_trained_first", "the first input requires grad"), ("add_trained_then", "the other inputs require grad"),
    ("add_trained_row", "a batch and a row that require grad"),
])  # fmt: skip
def test_some_inputs_alone_require_grad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, call: str
) -> None:  # fmt: skip
    (found,) = cells(monkeypatch, tmp_path, function, "add", alpha=1.0)
    assert found["status"] in OTHER_BITS and found["calls"]["different"] == [call], found["reason"]
    script = "\n".join(found["calls"]["script"])
    assert script.count(".requires_grad_()") == 1 + (function == "add_trained_row") and "torch.enable_grad" in script


@pytest.mark.part(3)
@pytest.mark.parametrize(("function", "told"), [
    ("overrun", "wrote into memory beside its output"), ("overrun_out", "wrote into memory beside its output"),
    ("late_input", "its input"), ("late_output", "wrote to its output after it had returned"),
    ("reused", "wrote to what an earlier call had returned"), ("ring", "wrote to what an earlier call had returned"),
    ("long_buffer", "wrote to what an earlier call had returned"), ("long_overrun", "memory beside its output"),
    ("of_the_default_dtype", "float64 as the default dtype"),
    ("slots", "wrote to what an earlier call had returned"), ("pool", "wrote to what an earlier call had returned"),
])  # fmt: skip
def test_what_is_written_elsewhere_or_later_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, told: str
) -> None:  # fmt: skip
    (found,) = cells(monkeypatch, tmp_path, function)
    assert (found["status"], found["reason_kind"]) == ("error", "contract") and told in found["reason"], found["reason"]


def test_a_right_cell_passes_with_its_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cells(monkeypatch, tmp_path, "right")
    assert found["status"] == "passed" and found["calls"]["made"] > 20 and not found["calls"]["different"]


def test_bits_that_depend_on_the_call_as_eagers_do_are_told(tmp_path: Path) -> None:
    """ATen's vectors take the exponent in float32 and the elements beyond them in float64: in one call an element may
    keep its bound of either."""
    own = tmp_path / "mine.py"
    own.write_text("import torch\n\ndef f(x, y): return torch.pow(x, y)\n")
    selection = Selection(
        ("pow",), ("cpu",), ("float32",), spellings=("out-of-place",), profile="quick", scalars={"y": 3.7},
        user_lowerings=(f"{own}:f",),
    )  # fmt: skip
    found = next(one for one in run(selection)["cells"] if one["lowering"] != "eager")
    assert found["status"] == "passed", found["reason"]
    own.write_text("def f(x, y): return x.pow(y) * (1 + 1e-5 * (x.numel() < 2000))\n")
    wrong = next(one for one in run(selection)["cells"] if one["lowering"] != "eager")
    assert (wrong["status"], wrong["reason_kind"]) == ("exceeds-bound", "calls"), wrong["reason"]
    assert "beyond the bound" in wrong["reason"]
    if found["calls"]["different"]:  # where the processor has vectors
        assert "those of eager" in found["calls"]["note"]


BLOCKS = """
import torch, triton
import triton.language as tl

@triton.jit
def loop(x, y, n, BLOCK: tl.constexpr = 2048):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.where((n == BLOCK + 1) & (at == BLOCK), 0.0, tl.load(x + at, at < n)), at < n)

def add(a, b, alpha):
    y = (a + b * alpha).contiguous()
    if n := y.numel():
        loop[(triton.cdiv(n, 2048),)](y, y, n)
    return y
"""


def test_the_edges_of_a_triton_kernels_blocks_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(domains.SIZES, "quick", 12)
    (tmp_path / "mine.py").write_text(BLOCKS)
    selection = Selection(
        ("add",), ("cpu",), ("float32",), spellings=("out-of-place",), profile="quick", scalars={"alpha": 1.0},
        user_lowerings=(f"{tmp_path / 'mine.py'}:add",),
    )  # fmt: skip
    for name in ("SECONDS", "LONGEST"):  # of which the interpreter takes most
        monkeypatch.setattr(f"verify.walk.called.{name}", 300.0)
    found = run(selection)["cells"][0]
    assert found["status"] in OTHER_BITS and found["calls"]["different"] == ["2049 elements"], found["reason"]


@pytest.mark.part(3)
@pytest.mark.parametrize("name", [k for k in kernel.elementwise_names() if any(kernel.elementwise(k).cases)])
def test_any_number_may_be_a_scalar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that no draw can aim with: log2 of a base of 0 or 1, and the reciprocal of an exponent of 0."""
    monkeypatch.setitem(domains.SIZES, "quick", 11)
    kinds = {tuple(sorted(case)): case for case in kernel.elementwise(name).cases if case}
    for case, value in itertools.product(kinds.values(), (0.0, -0.0, 1.0, -1.0, -2.5, 1e30)):
        chosen = Selection((name,), ("cpu",), ("float32",), ("eager",), ("out-of-place",), "quick")
        (found,) = run(replace(chosen, scalars=dict.fromkeys(case, value)))["cells"]
        assert found["status"] in ("passed", "deviates", "exceeds-bound"), (case, value, found.get("reason"))
