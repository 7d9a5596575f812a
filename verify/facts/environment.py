"""The environment variables with which the same code gives other bits. A fingerprint has those that are set, and a
replay sets them again."""

from __future__ import annotations

#: ATen's choice of instructions.
OF_CPU = ("ATEN_CPU_CAPABILITY",)
#: PYTORCH_MPS_FAST_MATH sets the math mode of every library that the process compiles (ATen's
#: native/mps/OperationUtils.mm, compileLibrary); with the fallback, what Metal lacks runs on the CPU.
OF_MPS = ("PYTORCH_MPS_FAST_MATH", "PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_PREFER_METAL")
#: LLVM's, Triton's, Inductor's and cuBLAS's, which every backend may meet.
SHARED = (
    "DISABLE_LLVM_OPT",
    "NVIDIA_TF32_OVERRIDE",
    "TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG",
    "TORCHINDUCTOR_EMULATE_DIVISION_ROUNDING",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS_ON_SAVED_TENSORS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_F32_DEFAULT",
)
EVERY = (*OF_CPU, *OF_MPS, *SHARED)
