"""Words that a damaged text is restored to, and no others."""

from __future__ import annotations

_COMMANDS = """
Big Bigg alpha angle approx arccos arcsin arctan array ast bar begin beta big bigcap bigcup bigg bigl bigr bin
binom bmod bold boldsymbol bot bowtie boxed bullet cap cdot cdots ceil chi circ cong cos cot csc cup deg delta
det dfrac diamond div dot dots dotsc ell emptyset epsilon equiv eta exists fbox flat forall frac gamma gcd geq
geqslant hat hbox hspace iff implies in infty int iota kappa lambda langle lceil ldots left leq leqslant
lfloor lim limits ln log lvert mapsto mathbb mathbf mathcal mathrm max mid min mod mu nabla neq ni nmid not
notin nu odot omega operatorname oplus otimes over overarc overbrace overleftarrow overline overrightarrow
parallel parbox partial perp phi pi pm pmod prime prod propto psi qquad quad rangle rceil rfloor rho right
rightarrow rm rvert sec setminus sigma sim sin sqrt square star subset subseteq sum sup supset supseteq tan
tau text textbf textit textrm tfrac therefore theta tilde times to top triangle triangleleft triangleright
underbrace underline uparrow upsilon varepsilon varnothing varphi vartheta vdots vec vee verb vert vline
vspace wedge widehat widetilde xi zeta
"""

_LIGATURE_WORDS = """
affine coefficient coefficients configuration confirm define defined defines definition difference differences
different effect efficient field fields fifteen fifth fifty figure figures fill filled fills final finally
find finding finds fine finish finished finite first fish fit fits fitting five fives fix fixed flag flat flip
flips floor flow flower infinite infinity off offer office official profit reflect reflection satisfied
satisfies specific suffices sufficient
"""

COMMANDS = frozenset(_COMMANDS.split())
"""TeX commands that problems use."""

LIGATURE_WORDS = frozenset(_LIGATURE_WORDS.split())
"""English words of problems that are set with a ligature: ff, fi, fl, ffi."""
