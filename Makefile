# make demo: a first real measurement, from nothing. make test: everything, green. Both are cheap to run again.
.PHONY: demo test lint bench docs clean environment
.DEFAULT_GOAL := demo
SHELL := /bin/bash
RUN := .venv/bin

environment:
	@scripts/environment

demo: environment
	@mkdir -p demo
	@echo "==> measuring where SmolLM2-135M-Instruct looks in examples/block.txt (the model is fetched the first time)"
	@$(RUN)/attnscope measure --file examples/block.txt --queries last,all --layers 0,5,10,15,17,20,25,29 \
		--class 'hash=#' --class 'star=*' --class 'dot=.' --picture demo/block.png
	@echo "==> done: open $(CURDIR)/demo/block.png"

test: environment lint
	@echo "==> tests"
	@OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(RUN)/python -m pytest -n 2 --dist worksteal  # two processes, a core each

lint: environment
	@echo "==> style, types, import rules"
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check --quiet .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-cache

bench: environment
	@$(RUN)/python -m bench

docs: environment
	@$(RUN)/python scripts/reference.py

clean:
	rm -rf .venv demo bench/envs .mypy_cache .ruff_cache .pytest_cache .hypothesis
