"""Sweeps: many settings of one algorithm, each with several seeds, compared by a metric of their
tests. What is planned and what came of it; `omg.integrations.ray` carries it out."""
