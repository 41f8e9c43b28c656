"""The page of an answer. All of it stands in this folder, and `report/formats.py` alone imports it."""
