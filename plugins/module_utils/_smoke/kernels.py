# -*- coding: utf-8 -*-
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that run on the GPU, as PTX text that the driver compiles for the GPU it finds.

PTX 6.4 for sm_70 is understood by every driver since R418 and by every GPU since Volta. Nothing here is timed against
an absolute
number: the programs are simple, and what counts is that the same program on the same GPU takes as long as it did
before.
"""

from __future__ import annotations

import collections
import ctypes

# Threads of a block of the linear programs, and edge of the square blocks of the matrix product.
BLOCK = 256
TILE = 16
# Words of a verification's answer: how many differ, the first place, every bit that was wrong.
RESULT_WORDS = 3

Kernel = collections.namedtuple("Kernel", ["name", "parameters"])

# Parameters in order: u64 is an address on the GPU, u32 a number.
FILL = Kernel("gpufleet_fill", ("u64", "u32", "u32", "u32"))
VERIFY = Kernel("gpufleet_verify", ("u64", "u32", "u32", "u32", "u64"))
ADD = Kernel("gpufleet_add", ("u64", "u64", "u64", "u32"))
PRODUCT = Kernel("gpufleet_product", ("u64", "u64", "u64", "u32"))
KERNELS = (FILL, VERIFY, ADD, PRODUCT)
KINDS = {"u64": ctypes.c_uint64, "u32": ctypes.c_uint32}

# What the linear programs begin with: %r10 the number of this thread among all, %r11 how many there are.
_POSITION = """
    mov.u32         %r1, %ctaid.x;
    mov.u32         %r2, %ntid.x;
    mov.u32         %r3, %tid.x;
    mad.lo.u32      %r10, %r1, %r2, %r3;
    mov.u32         %r4, %nctaid.x;
    mul.lo.u32      %r11, %r4, %r2;
"""

_FILL = (
    """
// word[i] = base + i * step, for i < words
.visible .entry gpufleet_fill(
    .param .u64 gpufleet_fill_memory,
    .param .u32 gpufleet_fill_words,
    .param .u32 gpufleet_fill_base,
    .param .u32 gpufleet_fill_step
)
{
    .reg .pred      %p<2>;
    .reg .b32       %r<16>;
    .reg .b64       %rd<4>;

    ld.param.u64    %rd1, [gpufleet_fill_memory];
    ld.param.u32    %r5, [gpufleet_fill_words];
    ld.param.u32    %r6, [gpufleet_fill_base];
    ld.param.u32    %r7, [gpufleet_fill_step];
    cvta.to.global.u64 %rd1, %rd1;
"""
    + _POSITION
    + """
FILL_NEXT:
    setp.ge.u32     %p1, %r10, %r5;
    @%p1 bra        FILL_END;
    mad.lo.u32      %r8, %r10, %r7, %r6;
    mul.wide.u32    %rd2, %r10, 4;
    add.u64         %rd3, %rd1, %rd2;
    st.global.u32   [%rd3], %r8;
    add.u32         %r10, %r10, %r11;
    bra             FILL_NEXT;
FILL_END:
    ret;
}
"""
)

_VERIFY = (
    """
// result[0] += words that are not base + i * step; result[1] = the first such i; result[2] |= the bits that differ
.visible .entry gpufleet_verify(
    .param .u64 gpufleet_verify_memory,
    .param .u32 gpufleet_verify_words,
    .param .u32 gpufleet_verify_base,
    .param .u32 gpufleet_verify_step,
    .param .u64 gpufleet_verify_result
)
{
    .reg .pred      %p<3>;
    .reg .b32       %r<16>;
    .reg .b64       %rd<5>;

    ld.param.u64    %rd1, [gpufleet_verify_memory];
    ld.param.u32    %r5, [gpufleet_verify_words];
    ld.param.u32    %r6, [gpufleet_verify_base];
    ld.param.u32    %r7, [gpufleet_verify_step];
    ld.param.u64    %rd4, [gpufleet_verify_result];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd4, %rd4;
"""
    + _POSITION
    + """
VERIFY_NEXT:
    setp.ge.u32     %p1, %r10, %r5;
    @%p1 bra        VERIFY_END;
    mad.lo.u32      %r8, %r10, %r7, %r6;
    mul.wide.u32    %rd2, %r10, 4;
    add.u64         %rd3, %rd1, %rd2;
    ld.global.u32   %r9, [%rd3];
    xor.b32         %r12, %r9, %r8;
    setp.eq.u32     %p2, %r12, 0;
    @%p2 bra        VERIFY_SAME;
    red.global.add.u32 [%rd4], 1;
    red.global.min.u32 [%rd4+4], %r10;
    red.global.or.b32 [%rd4+8], %r12;
VERIFY_SAME:
    add.u32         %r10, %r10, %r11;
    bra             VERIFY_NEXT;
VERIFY_END:
    ret;
}
"""
)

_ADD = (
    """
// sum[i] = left[i] + right[i], single precision, for i < count
.visible .entry gpufleet_add(
    .param .u64 gpufleet_add_left,
    .param .u64 gpufleet_add_right,
    .param .u64 gpufleet_add_sum,
    .param .u32 gpufleet_add_count
)
{
    .reg .pred      %p<2>;
    .reg .f32       %f<4>;
    .reg .b32       %r<16>;
    .reg .b64       %rd<8>;

    ld.param.u64    %rd1, [gpufleet_add_left];
    ld.param.u64    %rd2, [gpufleet_add_right];
    ld.param.u64    %rd3, [gpufleet_add_sum];
    ld.param.u32    %r5, [gpufleet_add_count];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
"""
    + _POSITION
    + """
ADD_NEXT:
    setp.ge.u32     %p1, %r10, %r5;
    @%p1 bra        ADD_END;
    mul.wide.u32    %rd4, %r10, 4;
    add.u64         %rd5, %rd1, %rd4;
    add.u64         %rd6, %rd2, %rd4;
    add.u64         %rd7, %rd3, %rd4;
    ld.global.f32   %f1, [%rd5];
    ld.global.f32   %f2, [%rd6];
    add.rn.f32      %f3, %f1, %f2;
    st.global.f32   [%rd7], %f3;
    add.u32         %r10, %r10, %r11;
    bra             ADD_NEXT;
ADD_END:
    ret;
}
"""
)

# One step of a tile: the sum grows by left[row][k] * right[k][column], both in shared memory.
_STEP = """
    ld.shared.f32   %%f2, [%%rd10+%d];
    ld.shared.f32   %%f3, [%%rd11+%d];
    fma.rn.f32      %%f1, %%f2, %%f3, %%f1;"""

_PRODUCT = """
// product = left * right, square matrices of single precision by rows, edge a multiple of %(tile)d; \
blocks of %(tile)d x %(tile)d threads
.visible .entry gpufleet_product(
    .param .u64 gpufleet_product_left,
    .param .u64 gpufleet_product_right,
    .param .u64 gpufleet_product_product,
    .param .u32 gpufleet_product_edge
)
{
    .reg .pred      %%p<2>;
    .reg .f32       %%f<4>;
    .reg .b32       %%r<16>;
    .reg .b64       %%rd<20>;
    .shared .align 4 .b8 left_tile[%(bytes)d];
    .shared .align 4 .b8 right_tile[%(bytes)d];

    ld.param.u64    %%rd1, [gpufleet_product_left];
    ld.param.u64    %%rd2, [gpufleet_product_right];
    ld.param.u64    %%rd3, [gpufleet_product_product];
    ld.param.u32    %%r5, [gpufleet_product_edge];
    cvta.to.global.u64 %%rd1, %%rd1;
    cvta.to.global.u64 %%rd2, %%rd2;
    cvta.to.global.u64 %%rd3, %%rd3;

    mov.u32         %%r1, %%tid.x;
    mov.u32         %%r2, %%tid.y;
    mov.u32         %%r3, %%ctaid.x;
    mov.u32         %%r4, %%ctaid.y;
    mad.lo.u32      %%r6, %%r4, %(tile)d, %%r2;      // row of the product
    mad.lo.u32      %%r7, %%r3, %(tile)d, %%r1;      // column of the product

    // left[row][tid.x] and right[tid.y][column] are the first words this thread brings.
    mad.lo.u32      %%r8, %%r6, %%r5, %%r1;
    mul.wide.u32    %%rd4, %%r8, 4;
    add.u64         %%rd4, %%rd1, %%rd4;
    mad.lo.u32      %%r9, %%r2, %%r5, %%r7;
    mul.wide.u32    %%rd5, %%r9, 4;
    add.u64         %%rd5, %%rd2, %%rd5;
    mul.wide.u32    %%rd6, %%r5, %(row)d;           // from one tile of right to the one below

    mov.u64         %%rd7, left_tile;
    mov.u64         %%rd8, right_tile;
    mul.wide.u32    %%rd9, %%r2, %(row)d;
    mul.wide.u32    %%rd11, %%r1, 4;
    add.u64         %%rd10, %%rd7, %%rd9;           // this thread's row of left_tile
    add.u64         %%rd12, %%rd10, %%rd11;         // the word of left_tile it brings
    add.u64         %%rd13, %%rd8, %%rd9;
    add.u64         %%rd13, %%rd13, %%rd11;         // the word of right_tile it brings
    add.u64         %%rd11, %%rd8, %%rd11;          // this thread's column of right_tile

    mov.f32         %%f1, 0f00000000;
    mov.u32         %%r10, 0;
PRODUCT_NEXT:
    setp.ge.u32     %%p1, %%r10, %%r5;
    @%%p1 bra        PRODUCT_END;
    ld.global.f32   %%f2, [%%rd4];
    ld.global.f32   %%f3, [%%rd5];
    st.shared.f32   [%%rd12], %%f2;
    st.shared.f32   [%%rd13], %%f3;
    bar.sync        0;
%(steps)s
    bar.sync        0;
    add.u64         %%rd4, %%rd4, %(row)d;
    add.u64         %%rd5, %%rd5, %%rd6;
    add.u32         %%r10, %%r10, %(tile)d;
    bra             PRODUCT_NEXT;
PRODUCT_END:
    mad.lo.u32      %%r11, %%r6, %%r5, %%r7;
    mul.wide.u32    %%rd14, %%r11, 4;
    add.u64         %%rd15, %%rd3, %%rd14;
    st.global.f32   [%%rd15], %%f1;
    ret;
}
""" % {
    "tile": TILE,
    "row": TILE * 4,
    "bytes": TILE * TILE * 4,
    "steps": "".join(_STEP % (k * 4, k * TILE * 4) for k in range(TILE)).lstrip("\n"),
}

PTX = ".version 6.4\n.target sm_70\n.address_size 64\n" + _FILL + _VERIFY + _ADD + _PRODUCT


def choose_grid(words) -> int:
    """Blocks for a linear program over so many words: enough to fill any GPU, each thread taking several words."""
    return max(1, min(65535, (words + BLOCK - 1) // BLOCK))
