// Predictions judged by tables of published measurements: evidence/, handed on.
#pragma once

#include "evidence/published.h"
#include "evidence/published_collectives.h"
#include "evidence/published_report.h"
