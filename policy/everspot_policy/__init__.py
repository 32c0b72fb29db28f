"""The rules for a change of an environment. They apply to every resource that any program declares.

`rules.RULES` and `stack.STACK_RULES` are the rules, `rule.judge` judges one resource, `settings` selects the rules of
an environment, `pack` serves them to the engine.
"""
