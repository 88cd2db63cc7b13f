// Predictions judged by tables of published measurements: evidence/, handed on.
#pragma once

#include "evidence/collectives.h"
#include "evidence/report.h"
#include "evidence/validate.h"
