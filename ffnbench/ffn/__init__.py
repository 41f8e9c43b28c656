"""What is measured: the forms of feed-forward networks, their widths, their exact
costs, their modules.
"""
