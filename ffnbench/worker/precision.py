"""How exactly this process multiplies matrices: set as a workload asks, whatever user code has done. Needs torch.

A model file that calls torch.set_float32_matmul_precision, or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE in the environment,
would otherwise make all rows of its process less exact, and faster.
"""

from __future__ import annotations

from typing import Any

import torch

from ffnbench.plan import MatmulPrecision, Workload

INHERITED = "none"  # torch's word: a more particular setting, or torch's own default, says it


def set_for(work: Workload) -> None:
    """Set what the workload asks."""
    set_to(work.matmul_precision, reduced_reductions=work.reduced_reductions)


def set_to(matmul_precision: str, *, reduced_reductions: bool = True) -> None:
    """Set the precision of float32 products, a value of MatmulPrecision, and whether 16-bit ones may add in 16 bits.

    Convolutions follow: a 1x1 one is a linear layer too, and cuDNN's would be TF32 where nobody asked. What is set by
    torch's newer `fp32_precision` comes undone, for torch refuses to answer where both ways were used.
    """
    every: Any = torch.backends
    of_cublas, of_conv, of_matmul = every.cuda.matmul, every.mkldnn.conv, every.mkldnn.matmul
    for one in (every, every.cudnn, every.mkldnn):
        if one.fp32_precision != INHERITED:
            one.fp32_precision = INHERITED
    torch.set_float32_matmul_precision(matmul_precision)  # cuBLAS and oneDNN
    every.cudnn.allow_tf32 = matmul_precision != MatmulPrecision.HIGHEST.value
    of_conv.fp32_precision = of_matmul.fp32_precision
    of_cublas.allow_fp16_reduced_precision_reduction = reduced_reductions
    of_cublas.allow_bf16_reduced_precision_reduction = reduced_reductions
    of_cublas.allow_fp16_accumulation = False  # torch's default, and no workload asks for another
