"""Boosting with XGBoost, which prints its metrics itself. Knows nothing of Sweeps: any table, any options."""

from __future__ import annotations

import argparse

import pandas as pd
import xgboost
from sklearn.datasets import load_breast_cancer

parser = argparse.ArgumentParser()
parser.add_argument("--table", help="CSV file with numbers; default: a table that is installed with scikit-learn")
parser.add_argument("--target", default="target")
parser.add_argument("--rounds", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", help="file to save the model to")
options, others = parser.parse_known_args()

table = pd.read_csv(options.table) if options.table else load_breast_cancer(as_frame=True).frame
held_out = table.sample(frac=0.2, random_state=options.seed)
train, held_out = (
    xgboost.DMatrix(rows.drop(columns=options.target), rows[options.target])
    for rows in (table.drop(held_out.index), held_out)
)
parameters = dict(each.removeprefix("--").split("=", 1) for each in others)  # all others are XGBoost's
model = xgboost.train(
    {"objective": "binary:logistic", "eval_metric": "logloss", "seed": options.seed, **parameters},
    train,
    options.rounds,
    [(train, "train"), (held_out, "eval")],
)
if options.model:
    model.save_model(options.model)
