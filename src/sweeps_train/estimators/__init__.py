"""Estimators of scikit-learn, XGBoost and LightGBM as trials.

Begin reading at ``training.py``. ``construct.py`` makes an estimator from its config, ``growth.py`` fits it piece by
piece, ``rows.py`` gives it the rows of a table, ``model.py`` saves it so that it takes raw rows.
"""
