// Package archtest holds the rules of the code base that a machine can check,
// as tests: who may import whom, which rooms are pure, what has to be
// documented, which names are taken and how long a file may be. It contains no
// code of the product, and nothing imports it.
//
// It reads the sources of the module that it is part of and assumes nothing but
// that they parse. A rule that turns out to be wrong is changed here, in the open,
// and never worked around.
package archtest
