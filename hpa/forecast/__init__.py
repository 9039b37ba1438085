"""Forecasts of demand that have to earn their place. Pure."""
