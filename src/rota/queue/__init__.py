"""Carriers of wake-ups. Whatever they lose, double or delay only costs time."""
