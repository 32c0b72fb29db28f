"""The rules that a change of an environment must keep: about everything that a program declares, whoever wrote it.

`rules.RULES` and `stack.STACK_RULES` are the rules, `rule.judge` judges one resource, `settings` says which of them
count in an environment, `pack` serves them to the engine.
"""
