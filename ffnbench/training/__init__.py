"""What does an FFN teach a model? A language model of bytes around it, the text, and how it is trained."""
