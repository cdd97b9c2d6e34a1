"""A night to look at: a small project, a model whose part is played from a script, and everything else real.

`stage` is the folder that it happens in, `performance` runs the night and does to it what nights must bear, `requests`
and `checks` say whether it went as told. The project and the script are files of this package.
"""
