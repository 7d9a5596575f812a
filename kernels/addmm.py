"""Facts about torch.addmm: alpha times a product plus beta times a bias."""

from __future__ import annotations

from verify.families import products

OTHER = (0.0, -1.0, 0.5, 3.0, 0.1)  # values that code treats apart, and one that float32 does not hold

KERNEL = products.kernel(
    "addmm",
    "alpha times a product of two matrices plus beta times a bias",
    products.Products(
        triton="verify.kernels.triton.products",
        call=lambda torch, a, b, bias, *, alpha, beta: torch.addmm(bias, a, b, alpha=alpha, beta=beta),
        bias=True,
        scalars=tuple(
            ({"alpha": alpha, "beta": beta}, {} if beta else {"data": "bias"})
            for alpha, beta in (
                (1.0, 1.0),
                (0.7, -1.3),
                (2.0, 0.0),
                (0.0, 0.5),
                (0.0, 0.0),
                (-0.5, 1.0),
                (1.0, 0.5),
                (-1.0, 1.0),
                (0.7, 0.0),
            )
        ),
    ),
    cases=({"alpha": 1.0, "beta": 1.0}, {"alpha": 0.7, "beta": -1.3}, {"alpha": 2.0, "beta": 0.0}),
    defaults={"alpha": 1.0, "beta": 1.0},
    further=(
        *(({"m": "5", "n": "6"}, {name: value}) for name in ("alpha", "beta") for value in OTHER),
        ({"m": "64", "k": "80", "n": "48"}, {"alpha": 0.5, "beta": 1.0}),
        ({"m": "1", "k": "40", "n": "1030"}, {"alpha": 0.5, "beta": 1.0}),
        ({"m": "1", "k": "40", "n": "6"}, {"alpha": -1.5, "beta": 1.0}),
        *(
            ({"m": m, "k": "40", "n": n}, {"alpha": 0.7, "beta": -1.3})
            for m, n in (("1", "70"), ("70", "1"), ("600", "20"))
        ),
        ({"m": "5", "k": "1031", "n": "6", "data": "extreme"}, {"alpha": 0.7}),
        ({"m": "24", "k": "2", "n": "18"}, {"beta": 0.0005}),
        ({"m": "30", "k": "32", "n": "20", "data": "special"}, {"alpha": -1.5, "beta": 0.5}),
        ({"m": "16", "k": "64", "n": "64", "data": "special"}, {"alpha": 0.7, "beta": 0.0}),
        ({"data": "bias"}, {"alpha": 2.0, "beta": 0.0}),
        ({"data": "bias"}, {"alpha": 0.0, "beta": 0.0}),
        *(
            ({"m": "30", "k": "32", "n": "20", "data": data}, {"alpha": 0.0, "beta": 0.5})
            for data in ("bias", "special")
        ),
        *(
            ({"m": m, "k": k, "n": n, "data": "bias"}, {"alpha": 2.0, "beta": 0.0})
            for m, k, n in (("16", "2100", "16"), ("130", "32", "130"))
        ),
        *(({"data": "bias"}, {"alpha": 2.0, "beta": beta}) for beta in (0.5, -0.5)),
        *(({"data": "bias"}, {"alpha": alpha, "beta": 0.0}) for alpha in (-0.5, 1.0)),
        ({"m": "24", "k": "40", "n": "130"}, {"alpha": 0.7, "beta": 0.7}),
        *(({"m": m, "k": k, "n": "20"}, {"alpha": -1.0, "beta": 1.0}) for m, k in (("300", "40"), ("24", "520"))),
        # in tiles: alpha on the product alone, a bias of special numbers that is not read, or is
        *(({"m": "130", "k": "32", "n": "130"}, {"alpha": alpha, "beta": 1.0}) for alpha in (0.5, -1.0, 2.0)),
        ({"m": "130", "k": "32", "n": "130"}, {"alpha": 1.0, "beta": -0.5}),
        *(
            ({"m": "5", "k": k, "n": n}, {"alpha": alpha, "beta": beta})
            for k, n in (("4168", "6"), ("72", "1300"))
            for alpha, beta in ((1.0, 0.5), (-0.5, 1.0))
        ),
        *(
            ({"m": m, "k": k, "n": "130", "data": "bias"} | layout, {"alpha": 2.0, "beta": 0.0})
            for m, k in (("130", "130"), ("1", "40"))
            for layout in ({}, {"layout": "transposed-b"})
        ),
        ({"m": "130", "k": "40", "n": "130", "data": "bias"}, {"beta": 1.0}),
        ({"m": "24", "k": "1", "n": "18"}, {"alpha": 0.7}),
        *(({"m": "6", "n": "7"}, {"alpha": alpha, "beta": -1.25}) for alpha in (-0.75, 0.0)),
        # the same factor for both, one so small that the product hardly counts, and large ones
        *(({"m": "6", "n": "7"}, {"alpha": value, "beta": value}) for value in (-1.0, 0.5)),
        *(({"m": "6", "n": "7"}, {"alpha": alpha, "beta": 1.0}) for alpha in (0.001, 8.0, -4.0)),
        ({"m": "40", "k": "0", "n": "6"}, {"beta": 0.5}),
        ({"m": "5", "k": "0", "n": "6"}, {"beta": 1e-7}),
        ({"m": "5", "k": "0", "n": "6", "data": "bias"}, {"beta": 0.0}),
    ),
    notes=(
        "with beta = 0 the bias is not read: torch.addmm's documentation",
        "with alpha = 0 nothing is stated beside NaNs and infinities of a and b, which BLAS does not read then",
        "the bias is of shape (n,); the other shapes that are broadcast to the product's are not tried",
    ),
)
