"""Exact linear algebra over Q(parameters)[d]: normal forms of operator matrices, and the structure that they imply.

- `scalars`: coefficient rings, their fraction fields, and prime fields.
- `polynomials`: polynomials in d, greatest common divisors, factorization, random evaluation points.
- `reduction`: Popov and Hermite forms, kernels and images.
- `operators`: matrices of differential operators.
- `smith`: the Smith form with its transformations, and its verification.
- `parametrization`: all solutions as free functions plus modes; other bases; degenerate parameter values.
- `modes`: exponents, multiplicities and certified roots.
- `realization`: state-space realization of a left matrix fraction.
"""
