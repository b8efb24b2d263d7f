"""Figures and live controls: pure functions from a state to a picture, one file a control."""
