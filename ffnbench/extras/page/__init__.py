"""The page of an answer, `-o run.html`: one file to read and share."""
