"""How good a model is: metrics, intervals, calibration, the decision rule, the audit, the accuracy of people, the report."""
