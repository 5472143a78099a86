# make demo: a first real measurement, from nothing. make test: everything, green. Both are cheap to run again.
# make test-unit: quick, without whole commands, real weights or a browser; test-command, test-model, test-browser: the rest.
.PHONY: demo test test-unit test-command test-model test-browser lint bench docs clean environment browser
.DEFAULT_GOAL := demo
SHELL := /bin/bash
RUN := .venv/bin
PYTEST := $(RUN)/python -m pytest -n 2 --dist worksteal

environment:
	@scripts/environment

demo: environment
	@echo "==> 1 of 2: where SmolLM2-135M-Instruct and its fine-tune look in ASCII puzzles (the model is fetched the first time)"
	@$(RUN)/attnscope run symbols --out demo/symbols
	@echo "==> 2 of 2: what filler before a question does to one head"
	@$(RUN)/attnscope run filler --out demo/filler
	@$(RUN)/attnscope figure bars published=reference/symbols.csv measured=demo/symbols/figures/symbols.csv \
	  -o demo/symbols-beside-published.png --y "Total Attention (Sum)" --title "Published readings beside what was measured" \
	  --caption "Published: mean of three readings of one chart by eye, whiskers from the lowest to the highest. Measured: SmolLM2-135M-Instruct and its fine-tune, whiskers: 95 % interval of the mean over prompts."
	@echo "==> done; the first study's report is beside this one: $(CURDIR)/demo/filler/report.html"

browser:
	@scripts/browser

test: environment browser lint
	@echo "==> tests"
	@$(PYTEST)

test-unit: environment
	@$(PYTEST) -m unit

test-command: environment
	@$(PYTEST) -m command

test-model: environment
	@$(PYTEST) -m model

test-browser: environment browser
	@$(PYTEST) -m browser

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
